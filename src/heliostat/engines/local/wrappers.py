"""Wrappers: processes that run attempts one after the other, each told by a line of numbers (see attempt.sh)."""

import contextlib
import errno
import os
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGXFSZ
from threading import Lock
from typing import Protocol

from heliostat.config import Home
from heliostat.engines.local.cgroups import CgroupTree
from heliostat.engines.local.processes import boot_id
from heliostat.engines.local.rooms import Room
from heliostat.engines.local.scripts import Script
from heliostat.engines.local.spawn import Program, spawn
from heliostat.engines.local.trace import Claim
from heliostat.engines.local.watch import Watch
from heliostat.models import AttemptId

_SCRIPT = str(Path(__file__).with_name("attempt.sh"))
_LINE_DESCRIPTOR = 5
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C"}
DEFAULT_SIGNALS = (SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGXFSZ)
_IDLE_SECONDS = 0.3
_MOST_BYTES = 4096


class Hearing(Protocol):
    """Who hears of them, in the thread of the watch."""

    def heard(self, wrapper: "Wrapper") -> object:
        """It has something to say."""

    def gone(self, wrapper: "Wrapper") -> None:
        """Its process has ended."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a wrapper is to run. Its descriptors stay open until that is over; it is closed once."""

    attempt_id: AttemptId
    script: Script
    limit_seconds: int  # 0: none
    grace_seconds: float
    other: tuple[int, int] | None  # uid and gid of another user
    sealed: int | None  # a descriptor of what only its container may see

    @property
    def has_limit(self) -> bool:
        return self.limit_seconds != 0

    def line(self, group: str) -> bytes:
        line = f"{self.attempt_id} {group} {self.script.name}"
        if self.has_limit or self.other or self.sealed is not None:
            uid, gid = self.other or ("-", "-")
            sealed = "-" if self.sealed is None else self.sealed
            line += f" {self.limit_seconds} {self.grace_seconds} {uid} {gid} {sealed}"
        return f"{line}\n".encode()

    def close(self) -> None:
        self.script.leave()
        if self.sealed is not None:
            os.close(self.sealed)


class Wrapper:
    """One of them. Without a line it is an earlier server's, or we have hung up: it leaves after what it runs."""

    def __init__(self, claim: Claim, line: int | None = None, runs: Sequence[AttemptId] = ()) -> None:
        self.claim, self.line = claim, line
        self.told = deque(runs)  # what it runs, then what it is to run next
        self.given_up: dict[AttemptId, Order] = {}  # of those told, who will not run: it may open what they name
        self.room: Room | None = None  # where others may follow
        self.is_dismissed = self.is_gone = False
        self.idle_since = 0.0
        self._unfinished = b""

    def tell(self, order: Order, group: str) -> None:
        """OSError when it is gone."""
        if self.line is None or self.is_dismissed:
            raise BrokenPipeError(errno.EPIPE, "its wrapper is gone")
        os.write(self.line, order.line(group))
        self.told.append(order.attempt_id)

    def hear(self) -> list[tuple[AttemptId, str]]:
        """Those that are over, in order, and how each ended."""
        *whole, self._unfinished = (self._unfinished + self._read()).split(b"\n")
        words = [line.decode("ascii").partition(" ") for line in whole]
        return [(attempt_id, how) for attempt_id, _, how in words]

    def _read(self) -> bytes:
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            return os.read(self.line, _MOST_BYTES) if self.line is not None else b""
        return b""


def wrapper_argv(home: Home, mark: str, groups: CgroupTree) -> list[str]:
    places = [str(os.getpid()), str(home.attempts), str(home.jobs)]
    return [
        *("/bin/sh", _SCRIPT, boot_id(), *places, mark),
        *(" ".join(files) for files in (groups.folders, groups.quiet_files)),
    ]


class Wrappers:
    """Those we have started. `lock` guards them and is held by whoever calls, but for `close`."""

    def __init__(self, argv: Sequence[str], watch: Watch, lock: Lock, hearing: Hearing) -> None:
        self._argv, self._watch, self._lock, self._hearing = argv, watch, lock, hearing
        self._all: set[Wrapper] = set()
        self._idle: list[Wrapper] = []
        self._retires = False

    def expect(self) -> None:
        """One will be wanted soon."""
        if not self._idle:
            self.put_back(self._start())

    def take(self) -> Wrapper:
        """One that has nothing to do."""
        return self._idle.pop() if self._idle else self._start()

    def put_back(self, wrapper: Wrapper) -> None:
        """It has nothing to do any more. Kept for a moment: to start one takes as long as many a job."""
        wrapper.idle_since = time.monotonic()
        self._idle.append(wrapper)
        if not self._retires:
            self._retires = True
            self._watch.call_after(_IDLE_SECONDS, self._retire)

    def dismiss(self, wrapper: Wrapper) -> None:
        """It is told nothing more, leaves after what it runs, and is listened to until then."""
        wrapper.is_dismissed = True
        self.close_room(wrapper)
        if wrapper in self._idle:
            self._idle.remove(wrapper)
        if wrapper.line is not None:
            line = socket.socket(fileno=wrapper.line)
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_WR)
            line.detach()

    def close_room(self, wrapper: Wrapper) -> None:
        """Nobody follows there."""
        if wrapper.room:
            wrapper.room.close()
            wrapper.room = None

    def hang_up(self, wrapper: Wrapper) -> None:
        """Only in the thread of the watch, or once that has ended: it may be about to read there."""
        self._all.discard(wrapper)
        if wrapper in self._idle:
            self._idle.remove(wrapper)
        self.close_room(wrapper)
        if wrapper.line is not None:
            self._watch.drop(wrapper.line)
            os.close(wrapper.line)
            wrapper.line = None

    def close(self) -> None:
        """What they run goes on."""
        with self._lock:
            for wrapper in list(self._all):
                self.hang_up(wrapper)

    def _start(self) -> Wrapper:
        ours, theirs = socket.socketpair()
        with ours, theirs, contextlib.ExitStack() as unless_watched:
            pid = spawn(Program(self._argv, _ENVIRONMENT, {_LINE_DESCRIPTOR: theirs.fileno()}, DEFAULT_SIGNALS))
            unless_watched.callback(os.waitpid, pid, 0)
            unless_watched.callback(ours.close)
            pidfd = os.pidfd_open(pid)
            unless_watched.pop_all()
            ours.setblocking(False)
            line = ours.detach()
        wrapper = Wrapper(Claim(pid), line)
        self._all.add(wrapper)
        self._watch.on_exit(pidfd, lambda: self._hearing.gone(wrapper))
        self._watch.on_readable(line, lambda: self._hearing.heard(wrapper))
        return wrapper

    def _retire(self) -> None:
        with self._lock:
            before = time.monotonic() - _IDLE_SECONDS
            for wrapper in [one for one in self._idle if one.idle_since <= before]:
                self.hang_up(wrapper)
            self._retires = bool(self._idle)
        if self._retires:
            self._watch.call_after(_IDLE_SECONDS, self._retire)
