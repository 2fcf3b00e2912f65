"""posix_spawn by ctypes: starts a program without blocking other threads.

`os.posix_spawn` holds the interpreter lock until the new program is loaded, which blocks all requests for about a
millisecond. The same call by ctypes releases the lock.
"""

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

_libc = ctypes.CDLL(None, use_errno=True)
_quick = ctypes.PyDLL(None)  # for calls that take less time than releasing the interpreter lock
_OPAQUE_BYTES = 1024  # the structures of the C library are opaque; the largest has 336 bytes
_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80


@dataclass(frozen=True, slots=True)
class Program:
    """A program to start in a new session. It inherits only these descriptors."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    descriptors: Mapping[int, int]  # number in the program: our descriptor
    default_signals: Iterable[int] = ()


def spawn_program(program: Program) -> int:
    """Returns the process id. Raises OSError."""
    actions, pid = _opaque(), ctypes.c_int()
    attributes = _attributes(tuple(program.default_signals))
    _check(_quick.posix_spawn_file_actions_init(actions))
    try:
        _check(_quick.posix_spawn_file_actions_addopen(actions, 0, b"/dev/null", os.O_RDONLY, 0))
        for there, here in program.descriptors.items():
            _check(_quick.posix_spawn_file_actions_adddup2(actions, here, there))
        path, argv = os.fsencode(program.argv[0]), _strings(program.argv)
        environment = _strings([f"{name}={value}" for name, value in program.environment.items()])
        _check(_libc.posix_spawn(ctypes.byref(pid), path, actions, attributes, argv, environment))
    finally:
        _quick.posix_spawn_file_actions_destroy(actions)
    return pid.value


@cache
def _attributes(default_signals: tuple[int, ...]) -> ctypes.Array[ctypes.c_char]:
    """Cached and never freed: posix_spawn only reads them."""
    attributes, none, defaults = _opaque(), _opaque(), _opaque()
    _quick.sigemptyset(none)
    _quick.sigemptyset(defaults)
    for number in default_signals:
        _quick.sigaddset(defaults, number)
    _check(_quick.posix_spawnattr_init(attributes))
    _check(_quick.posix_spawnattr_setsigmask(attributes, none))
    _check(_quick.posix_spawnattr_setsigdefault(attributes, defaults))
    _check(_quick.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID)))
    return attributes


def _opaque() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(_OPAQUE_BYTES)


def _strings(words: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [os.fsencode(word) for word in words]
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)


def _check(error_number: int) -> None:
    if error_number:
        raise OSError(error_number, os.strerror(error_number))
