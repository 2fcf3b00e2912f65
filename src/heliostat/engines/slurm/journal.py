"""Files about each submission: the server's submission journal, and the receipt that the job's script writes.

Journal: `attempts/12.1.slurm` is created before the submission (`uid 1001`) and completed after it (`uid 1001 job
4711`; `restarts 2 first 1` follows if it is the Slurm job of attempt 1, which was requeued twice since), so that a
killed server neither loses nor repeats a submission. An array element first has its chunk and index (`uid 1001
with 12.1 as 3`), later `uid 1001 job 4711_3`. An attempt that must never be submitted has `disowned`.

Receipt: the start of the job, its node, and its exit code. A slurmctld that is killed loses its last seconds: it
may use a job id twice, run a job twice, or report a completed job as failed. The receipt is still correct. The
file belongs to the user, so a false receipt only affects the user's own job.
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
ALREADY_STARTED_EXIT_CODE = 125  # of a script that finds its receipt already written
_MAX_BYTES = 64 * 1024
_BEGUN = re.compile(r"begun (\d[\d_]{0,29}) (\d{1,9}) ([\w.-]{0,255})", re.ASCII)
_ENDED = re.compile(r"ended (\d[\d_]{0,29}) (\d{1,9}) (\d{1,3})( memory)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ArrayElement:
    """Position of an attempt in a Slurm array that was submitted for several attempts."""

    first_attempt_id: AttemptId  # first of the chunk; identifies the array in Slurm
    index: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    uid: int | None  # None: disowned
    slurm_job_id: int | None = None  # None: unknown whether Slurm has it
    element: ArrayElement | None = None
    restart_count: int = 0  # how often Slurm had requeued it when this attempt began
    submitted_as_attempt: int | None = None  # if it was submitted as an earlier attempt
    is_unreadable: bool = False  # then it is unknown whether Slurm has it


def parse_journal_entry(text: str) -> JournalEntry:
    match = _ENTRY.fullmatch(text.strip())
    if match is None:
        return JournalEntry(None, is_unreadable=text.strip() != _DISOWNED)
    uid, first_attempt_id, index, number, restarts, first = match.groups()
    element = ArrayElement(first_attempt_id, int(index)) if first_attempt_id else None
    restart_count, submitted_as = (int(restarts), int(first)) if first else (0, None)
    return JournalEntry(int(uid), parse_job_id(number or ""), element, restart_count, submitted_as)


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
        """Seconds since 1970; infinite if there is no entry."""
        try:
            return self._path(attempt_id).stat().st_mtime
        except FileNotFoundError:
            return math.inf

    def put(self, attempt_id: AttemptId, entry: JournalEntry) -> None:
        """Atomic."""
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
    chunk = "" if element is None else f" with {element.first_attempt_id} as {element.index}"
    job = "" if entry.slurm_job_id is None else f" job {entry.slurm_job_id}"
    restarts = (
        f" restarts {entry.restart_count} first {entry.submitted_as_attempt}"
        if job and entry.submitted_as_attempt is not None
        else ""
    )
    return f"uid {entry.uid}{chunk}{job}{restarts}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The newest run of a job; empty if it never started."""

    slurm_job_id: int | None = None
    node: str = ""
    exit_code: int | None = None
    written_at: datetime | None = None  # time of the last write
    out_of_memory: bool = False  # only detected for containers

    @property
    def has_started(self) -> bool:
        return self.slurm_job_id is not None

    @property
    def has_ended(self) -> bool:
        return self.exit_code is not None

    @property
    def exited_without_signal(self) -> bool:
        return self.exit_code is not None and self.exit_code < 128


EMPTY_RECEIPT = Receipt()


def read_receipt(path: str) -> Receipt:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return EMPTY_RECEIPT
    try:
        written_at = datetime.fromtimestamp(os.fstat(descriptor).st_mtime, UTC)
        return replace(
            parse_receipt(os.read(descriptor, _MAX_BYTES).decode("ascii", "replace")), written_at=written_at
        )
    except (OSError, ValueError, OverflowError):  # also for an invalid time: the file is the user's
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
