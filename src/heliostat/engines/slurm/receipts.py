"""What a job's own script notes of its life: that it began, where and when, and with which code it ended.

A controller of Slurm that is killed forgets its last seconds: it gives a number twice, runs a job a second time,
or calls one failed that has ended well. What the script wrote is still there. The file is the user's own: who lies
in it cheats nobody else.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from heliostat.engines.slurm.numbers import read_number

BEGUN_BEFORE = 125  # with which a script ends that finds its own receipt
_MOST_BYTES = 64 * 1024
_BEGUN = re.compile(r"begun (\d[\d_]{0,29}) (\d{1,9}) ([\w.-]{0,255})", re.ASCII)
_ENDED = re.compile(r"ended (\d[\d_]{0,29}) (\d{1,9}) (\d{1,3})( memory)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Of the newest run; nothing, if it never began."""

    number: int | None = None  # in Slurm
    node: str = ""
    exit_code: int | None = None
    noted_at: datetime | None = None  # when the newest of it was written
    out_of_memory: bool = False  # as far as its container could tell

    @property
    def has_begun(self) -> bool:
        return self.number is not None

    @property
    def has_ended(self) -> bool:
        return self.exit_code is not None

    @property
    def ended_by_itself(self) -> bool:
        """Not by a signal."""
        return self.exit_code is not None and self.exit_code < 128


NO_RECEIPT = Receipt()


def read_receipt(path: str) -> Receipt:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return NO_RECEIPT
    try:
        noted_at = datetime.fromtimestamp(os.fstat(descriptor).st_mtime, UTC)
        return replace(receipt_in(os.read(descriptor, _MOST_BYTES).decode("ascii", "replace")), noted_at=noted_at)
    except (OSError, ValueError, OverflowError):  # of a time that is none, too: it is the user's own file
        return NO_RECEIPT
    finally:
        os.close(descriptor)


def receipt_in(text: str) -> Receipt:
    receipt, run = NO_RECEIPT, ("", "")
    for line in text.splitlines():
        if begun := _BEGUN.fullmatch(line):
            run = (begun[1], begun[2])
            receipt = Receipt(read_number(begun[1]), begun[3])
        elif (ended := _ENDED.fullmatch(line)) and (ended[1], ended[2]) == run:
            receipt = replace(receipt, exit_code=int(ended[3]) & 0xFF, out_of_memory=ended[4] is not None)
    return receipt


def begin_lines(receipt: str, number: str) -> Iterator[str]:
    """For the shell; both are words of it. Whoever has begun before, in this run or under another number, does not
    begin again; nor does one whose receipt is gone: nobody waits for it any more."""
    yield f'heliostat_run="{number} ${{SLURM_RESTART_COUNT:-0}}"'
    yield f"[ -f {receipt} ] || exit {BEGUN_BEFORE}"
    yield "while read -r heliostat_line; do"
    yield "    case $heliostat_line in"
    yield f'    "begun $heliostat_run "*) exit {BEGUN_BEFORE} ;;'
    yield f'    "begun {number} "*) ;;'
    yield f'    "begun "*) exit {BEGUN_BEFORE} ;;'
    yield "    esac"
    yield f"done <{receipt}"
    yield f'echo "begun $heliostat_run $SLURMD_NODENAME" >>{receipt} || exit {BEGUN_BEFORE}'


def end_lines(receipt: str, contained: bool = False) -> Iterator[str]:
    """After `code` is known, and of a container whether its memory was full."""
    full = "${heliostat_full:+ memory}" if contained else ""
    yield f'echo "ended $heliostat_run $code{full}" >>{receipt}'
    yield 'exit "$code"'
