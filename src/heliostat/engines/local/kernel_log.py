"""Reads XIDs, the errors of NVIDIA GPUs, from the kernel log.

Only lines of the kernel itself count: the kernel gives another facility to lines that programs write to /dev/kmsg.
The name of a process in a line is chosen by its user, so nothing after the pid is read.
"""

import os
import re
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_PATH = "/dev/kmsg"
_MAX_RECORD_BYTES = 8192  # of the kernel; a shorter buffer fails
_RECORD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;\n]*;([^\n]*)")
_XID = re.compile(
    r"NVRM: Xid \(PCI:([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.\d)?(?: GPU-I:\d{1,3})?\): "
    r"(\d{1,4})(?=[, ]|$)(?:, pid='?(\d{1,10})\b)?"
)
_PRIORITIES = 8  # of a facility; the facility of the kernel is 0


@dataclass(frozen=True, slots=True)
class XidMessage:
    sequence: int  # of the message since boot
    at_seconds: float  # since boot, on the monotonic clock
    pci: str  # "0000:3b:00", of the card
    xid: int
    pid: int | None = None


def parse_record(record: bytes) -> XidMessage | None:
    """The XID in a record of /dev/kmsg; None: there is none."""
    head = _RECORD.match(record)
    if head is None or int(head[1]) >= _PRIORITIES:
        return None
    found = _XID.match(head[4].decode("ascii", "replace"))
    if found is None:
        return None
    pid = int(found[5]) if found[5] else None
    pci = f"{int(found[1], 16):04x}:{found[2]}:{found[3]}".lower()
    return XidMessage(int(head[2]), int(head[3]) / 1e6, pci, int(found[4]), pid)


def open_kernel_log() -> int | None:
    """A descriptor at the oldest message that the kernel still has; None: this user may not read it."""
    try:
        return os.open(_PATH, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


class KernelLog:
    """The messages in order. For one thread at a time."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def is_readable(self) -> bool:
        return self._descriptor is not None

    def wait(self, seconds: float) -> None:
        """Until there is a message."""
        if self._descriptor is None:
            time.sleep(seconds)
            return
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.poll(seconds * 1000)

    def read_xids(self) -> Iterator[XidMessage]:
        """Those since the previous call."""
        while (record := self._read()) is not None:
            if message := parse_record(record):
                yield message

    def _read(self) -> bytes | None:
        if self._descriptor is None:
            return None
        while True:
            try:
                return os.read(self._descriptor, _MAX_RECORD_BYTES) or None
            except BrokenPipeError:
                continue  # messages were overwritten: read the oldest that is left
            except OSError:
                return None


def message_time(message: XidMessage) -> datetime:
    """By the current wall clock."""
    return datetime.now(UTC) - timedelta(seconds=max(0.0, time.monotonic() - message.at_seconds))
