"""What is on disk about each submission: what the server notes, and what the job's own script notes.

The server's: `attempts/12.1.slurm` is made before the submission (`uid 1001`) and completed after it
(`uid 1001 job 4711`; `restarts 2 first 1` follows if it is the Slurm job of attempt 1, which was requeued twice
since), so that a killed server leaves nothing doubled or lost. Of an element of an array it says first with which
it goes and as which element (`uid 1001 with 12.1 as 3`), and later `uid 1001 job 4711_3`. An attempt that must
never be submitted has `disowned`.

The job's own is its receipt: that it began, where and when, and with which code it ended. A controller of Slurm
that is killed forgets its last seconds: it gives a number twice, runs a job a second time, or calls one failed
that has ended well. What the script wrote is still there. The file is the user's own: a lie in it cheats nobody
else.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from heliostat.engines.slurm.command_output import parse_job_id
from heliostat.models import AttemptId

_SUFFIX = ".slurm"
_DISOWNED = "disowned"
_ENTRY = re.compile(
    r"uid (\d{1,10})(?: with (\d+\.\d+) as (\d{1,9}))?"
    r"(?: job ([\d_]{1,30})(?: restarts (\d{1,10}) first (\d{1,10}))?)?",
    re.ASCII,
)
ALREADY_STARTED_EXIT_CODE = 125  # with which a script ends that finds its own receipt
_MOST_BYTES = 64 * 1024
_BEGUN = re.compile(r"begun (\d[\d_]{0,29}) (\d{1,9}) ([\w.-]{0,255})", re.ASCII)
_ENDED = re.compile(r"ended (\d[\d_]{0,29}) (\d{1,9}) (\d{1,3})( memory)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ArrayElement:
    """What an attempt is among those that are submitted with it, as one array of Slurm."""

    first_attempt_id: AttemptId  # the first of them: its id marks them all
    index: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    uid: int | None  # None: disowned
    slurm_job_id: int | None = None  # None: it is not known whether Slurm has it
    element: ArrayElement | None = None
    restart_count: int = 0  # how often Slurm had requeued it when this attempt began to wait
    submitted_as_attempt: int | None = None  # the attempt it was submitted as, if that is another
    is_unreadable: bool = False  # then nothing is known: Slurm may have it


def parse_journal_entry(text: str) -> JournalEntry:
    found = _ENTRY.fullmatch(text.strip())
    if found is None:
        return JournalEntry(None, is_unreadable=text.strip() != _DISOWNED)
    uid, leader, index, number, restarts, first = found.groups()
    element = ArrayElement(leader, int(index)) if leader else None
    restarted, since = (int(restarts), int(first)) if first else (0, None)
    return JournalEntry(int(uid), parse_job_id(number or ""), element, restarted, since)


class SubmissionJournal:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, attempt_id: AttemptId) -> JournalEntry | None:
        try:
            text = self._path(attempt_id).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return parse_journal_entry(text)

    def written_at(self, attempt_id: AttemptId) -> float:
        """In seconds since 1970."""
        try:
            return self._path(attempt_id).stat().st_mtime
        except FileNotFoundError:
            return math.inf

    def put(self, attempt_id: AttemptId, entry: JournalEntry) -> None:
        """All of it or nothing."""
        draft = self._folder / f"{attempt_id}.draft"
        draft.write_text(_text(entry) + "\n", encoding="utf-8")
        os.replace(draft, self._path(attempt_id))

    def remove(self, attempt_ids: Iterable[AttemptId]) -> None:
        for attempt_id in attempt_ids:
            self._path(attempt_id).unlink(missing_ok=True)

    def attempt_ids(self) -> Iterator[AttemptId]:
        return (path.name.removesuffix(_SUFFIX) for path in self._folder.glob(f"*{_SUFFIX}"))

    def _path(self, attempt_id: AttemptId) -> Path:
        return self._folder / f"{attempt_id}{_SUFFIX}"


def _text(entry: JournalEntry) -> str:
    if entry.uid is None:
        return _DISOWNED
    element = entry.element
    place = "" if element is None else f" with {element.first_attempt_id} as {element.index}"
    job = "" if entry.slurm_job_id is None else f" job {entry.slurm_job_id}"
    again = (
        f" restarts {entry.restart_count} first {entry.submitted_as_attempt}"
        if job and entry.submitted_as_attempt is not None
        else ""
    )
    return f"uid {entry.uid}{place}{job}{again}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Of the newest run; nothing, if it never began."""

    slurm_job_id: int | None = None  # in Slurm
    node: str = ""
    exit_code: int | None = None
    written_at: datetime | None = None  # when the newest of it was written
    out_of_memory: bool = False  # as far as its container could tell

    @property
    def has_started(self) -> bool:
        return self.slurm_job_id is not None

    @property
    def has_ended(self) -> bool:
        return self.exit_code is not None

    @property
    def exited_without_signal(self) -> bool:
        """Not by a signal."""
        return self.exit_code is not None and self.exit_code < 128


EMPTY_RECEIPT = Receipt()


def read_receipt(path: str) -> Receipt:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return EMPTY_RECEIPT
    try:
        noted_at = datetime.fromtimestamp(os.fstat(descriptor).st_mtime, UTC)
        return replace(
            parse_receipt(os.read(descriptor, _MOST_BYTES).decode("ascii", "replace")), written_at=noted_at
        )
    except (OSError, ValueError, OverflowError):  # of a time that is none, too: it is the user's own file
        return EMPTY_RECEIPT
    finally:
        os.close(descriptor)


def parse_receipt(text: str) -> Receipt:
    receipt, run = EMPTY_RECEIPT, ("", "")
    for line in text.splitlines():
        if begun := _BEGUN.fullmatch(line):
            run = (begun[1], begun[2])
            receipt = Receipt(parse_job_id(begun[1]), begun[3])
        elif (ended := _ENDED.fullmatch(line)) and (ended[1], ended[2]) == run:
            receipt = replace(receipt, exit_code=int(ended[3]) & 0xFF, out_of_memory=ended[4] is not None)
    return receipt
