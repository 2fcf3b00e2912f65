"""What Slurm's commands print, as records: pure. A line that cannot be read is no line.

Only fields are asked for that no user can fill with text of their own: a name or a comment may hold line breaks,
and would let one job speak for another.
"""

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial

from heliostat.engines.slurm.numbers import read_number

SQUEUE_FIELDS = (
    *("JobArrayID", "State", "UserID", "exit_code", "StartTime", "EndTime", "NodeList"),
    *("RestartCnt", "TimeUsed", "TimeLimit", "PriorityLong", "Partition", "SubmitTime", "tres-alloc"),
    "Reason",
)
SACCT_FIELDS = ("JobID", "State", "UID", "ExitCode", "Start", "End", "NodeList", "Reason")
SINFO_FIELDS = ("NodeList", "StateLong", "CPUs", "Memory", "Gres", "Features", "Reason")

WAITING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
OVER = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "OUT_OF_MEMORY",
        "NODE_FAIL",
        "BOOT_FAIL",
        "DEADLINE",
        "PREEMPTED",
        "REVOKED",
    }
)
_STATUS = re.compile(r"(\d{1,6})(?::(\d{1,3}))?")
_GRES = re.compile(r"gpu:(?:([A-Za-z][\w.-]*):)?(\d{1,4})")
_ALLOCATED = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\d+ GRES=gpu[^( ]*\(IDX:([\d,-]+)\)")
_CLOCK = re.compile(r"(?:(?:(\d{1,6})-)?(\d{1,3}):)?(\d{1,3}):(\d\d)")
_MOST_HOSTS = 10_000
_MOST_KEPT = 32_768  # lines of the queue


@dataclass(frozen=True, slots=True)
class Standing:
    """What only Slurm's queue knows of a job. Times are kept as they are printed: few are ever needed."""

    restarts: int = 0  # how often it was put back into the queue
    used: str = "0:00"  # time it ran, without that in which it was suspended
    limit: str = "UNLIMITED"
    priority: int = 0  # 0: held
    partition: str = ""
    submitted: str = ""  # seconds since 1970
    tres: str = ""  # what it asks for or has: `cpu=2,mem=1G,node=1,gres/gpu=3`


_NOWHERE = Standing()


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as Slurm sees it."""

    number: int
    state: str
    uid: int
    exit_code: int
    signal: int  # that ended it; 0: none
    started_at: datetime | None
    ended_at: datetime | None
    nodes: tuple[str, ...]
    reason: str
    standing: Standing | None = None  # None: not of squeue

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING

    @property
    def is_over(self) -> bool:
        """Nothing of it is left; while it is COMPLETING something is."""
        return self.state in OVER

    @property
    def place(self) -> Standing:
        return self.standing or _NOWHERE

    @property
    def has_run(self) -> bool:
        """It was given nodes: it runs or ran."""
        return bool(self.nodes) and self.started_at is not None and not self.is_waiting


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm sees it."""

    name: str
    state: str  # with Slurm's marks: "idle*" does not answer
    cpus: int
    memory_mib: int
    gpus: tuple[tuple[str, int], ...]  # type and how many
    features: tuple[str, ...]
    reason: str | None


def jobs_of_squeue(text: str) -> Iterator[SlurmJob]:
    """Lines of SQUEUE_FIELDS. The exit code there is the status of wait(2)."""
    return _jobs(text, from_status=True)


def jobs_of_sacct(text: str) -> Iterator[SlurmJob]:
    """Lines of SACCT_FIELDS. The exit code there is `code:signal`."""
    return _jobs(text, from_status=False)


def nodes_of_sinfo(text: str) -> Iterator[SlurmNode]:
    """Lines of SINFO_FIELDS; each node once, though it is listed for each of its partitions."""
    seen: set[str] = set()
    for line in text.splitlines():
        words = line.split("|", len(SINFO_FIELDS) - 1)
        if len(words) < len(SINFO_FIELDS) or not _are_numbers(words[2], words[3]) or words[0] in seen:
            continue
        seen.add(words[0])
        name, state, cpus, memory, gres, features, reason = words
        reason = reason.rstrip("|")
        yield SlurmNode(
            name,
            state.lower(),
            int(cpus),
            int(memory),
            tuple(gpus_of(gres)),
            tuple(word for word in features.split(",") if word and word != "(null)"),
            None if reason in ("none", "(null)", "") else reason,
        )


def gpus_of(gres: str) -> Iterator[tuple[str, int]]:
    """`gpu:a100:4(S:0-1),gpu:t4:2` → type and count of each."""
    for word in re.sub(r"\([^)]*\)", "", gres).split(","):
        if found := _GRES.fullmatch(word):
            yield found[1] or "gpu", int(found[2])


def devices_of(text: str, nodes: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """The GPUs a job has on each of these nodes, of `scontrol --details show job`.

    Its owner can write into that text, about this job only; so it serves to show, not to decide.
    """
    found: dict[str, tuple[int, ...]] = {}
    for hosts, indexes in _ALLOCATED.findall(text):
        numbers = tuple(int(number) for number in expand_hosts(f"[{indexes}]") if _are_numbers(number))
        found |= {node: numbers for node in expand_hosts(hosts) if node in nodes}
    return found


def seconds_of(text: str) -> int | None:
    """`1-02:03:04`, `02:03:04`, `3:04`; None: `UNLIMITED`, `INVALID` and the like."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def expand_hosts(text: str) -> tuple[str, ...]:
    """`gpu[01-03,7],login` → the name of each node."""
    if "[" not in text and "," not in text:
        return (text,) if text else ()
    return tuple(name for part in _outer_parts(text) for name in _expand(part))[:_MOST_HOSTS]


def submitted_number(text: str) -> int | None:
    """What `sbatch --parsable` prints: `12`, or `12;cluster`."""
    number = text.strip().partition(";")[0]
    return int(number) if _are_numbers(number) else None


def booted_at_of(text: str) -> datetime | None:
    """Of `scontrol show config`."""
    found = re.search(r"^BOOT_TIME\s*=\s*(\d{1,11})\s*$", text, re.ASCII | re.MULTILINE)
    return time_of(found[1]) if found else None


def max_array_size_of(text: str) -> int | None:
    """Of `scontrol show config`."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d{1,9})\s*$", text, re.ASCII | re.MULTILINE)
    return int(found[1]) if found else None


def comments_of(text: str) -> Iterator[tuple[int, str]]:
    """Of lines `JobArrayID|Comment|`: number and comment. Only a hint, as anybody may write any comment."""
    for line in text.splitlines():
        word, _, said = line.rstrip("|").partition("|")
        if (number := read_number(word)) is not None:
            yield number, said


def new_mark() -> str:
    """What nobody can have written into a name."""
    return f"_{secrets.token_hex(8)}_"


def names_of(text: str, mark: str) -> Iterator[tuple[int, str]]:
    """Of `12_3MARKnameMARK` a line, where names may hold anything, also line breaks."""
    words = text.split(mark)
    for number, name in zip(words[::2], words[1::2], strict=False):
        if (known := read_number(number.strip())) is not None:
            yield known, name


def _jobs(text: str, *, from_status: bool) -> Iterator[SlurmJob]:
    read = _read_again if from_status else partial(_read, from_status=False)
    return (job for line in text.splitlines() if (job := read(line)) is not None)


@lru_cache(_MOST_KEPT)
def _read_again(line: str) -> SlurmJob | None:
    """Of a job that waits or is over, Slurm says the same at every look."""
    return _read(line, from_status=True)


def _read(line: str, *, from_status: bool) -> SlurmJob | None:
    fields = len(SQUEUE_FIELDS if from_status else SACCT_FIELDS)
    words = line.split("|", fields - 1)
    number = read_number(words[0])
    if len(words) != fields or number is None or not _is_number(words[2]):
        return None
    status = (0, 0) if words[3] == "0" else _status(words[3], from_status=from_status)
    if status is None:
        return None
    code, signal = status
    return SlurmJob(
        number=number,
        state=words[1].partition(" ")[0],  # "CANCELLED by 1000"
        uid=int(words[2]),
        exit_code=code,
        signal=signal,
        started_at=time_of(words[4]),
        ended_at=time_of(words[5]),
        nodes=expand_hosts("" if words[6] in ("None assigned", "(null)") else words[6]),
        reason=words[-1].rstrip("|"),
        standing=_standing(words) if from_status else None,
    )


def _status(text: str, *, from_status: bool) -> tuple[int, int] | None:
    """Exit code and signal."""
    found = _STATUS.fullmatch(text)
    if found is None:
        return None
    code, signal = int(found[1]), int(found[2] or 0)
    return (code >> 8, code & 0x7F) if from_status else (code, signal)


def _standing(words: list[str]) -> Standing:
    restarts, used, limit, priority, partition, submitted, tres = words[7:14]
    return Standing(_number(restarts), used, limit, _number(priority), partition, submitted, tres)


def _number(text: str) -> int:
    return int(text) if _is_number(text) else 0


def time_of(text: str) -> datetime | None:
    """Seconds since 1970, as SLURM_TIME_FORMAT=%s makes it; "N/A", "Unknown" and the like are none."""
    return datetime.fromtimestamp(int(text), UTC) if _is_number(text) and 0 < int(text) < 2**33 else None


def _are_numbers(*words: str) -> bool:
    return all(map(_is_number, words))


def _is_number(word: str) -> bool:
    return word.isdecimal() and word.isascii() and len(word) <= 18


def _outer_parts(text: str) -> Iterator[str]:
    """Split at commas outside of brackets."""
    return (part for part in re.split(r",(?![^\[]*\])", text) if part)


def _expand(part: str) -> Iterator[str]:
    """One part; of several pairs of brackets the first is opened first."""
    before, bracket, rest = part.partition("[")
    inside, closed, after = rest.partition("]")
    if not (bracket and closed):
        yield part
        return
    for item in inside.split(","):
        for number in _range(item):
            yield from (f"{before}{number}{end}" for end in (_expand(after) if after else ("",)))


def _range(item: str) -> Iterator[str]:
    first, dash, last = item.partition("-")
    if not (dash and _are_numbers(first, last)) or int(last) - int(first) >= _MOST_HOSTS:
        yield item
        return
    yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
