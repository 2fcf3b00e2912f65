"""Starts a program without stopping our other threads meanwhile.

`os.posix_spawn` keeps the interpreter locked until the new program has been loaded, about a millisecond in which
no request is answered. The same call of the C library through ctypes lets the others go on.
"""

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

_libc = ctypes.CDLL(None, use_errno=True)
_quick = ctypes.PyDLL(None)  # for calls that are over sooner than the interpreter can be unlocked
_OPAQUE_BYTES = 1024  # the structures of the C library are opaque; the largest known has 336 bytes
_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80


@dataclass(frozen=True, slots=True)
class Program:
    """What to start, in a session of its own. The program sees only these descriptors and signals by default."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    descriptors: Mapping[int, int]  # its number there: ours
    default_signals: Iterable[int] = ()


def spawn_program(program: Program) -> int:
    """Its process id; OSError when it cannot be started."""
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
    """Only read by those who start programs with them, and kept for good."""
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
