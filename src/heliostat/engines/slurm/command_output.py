"""What Slurm's commands print, as records: pure. A line that cannot be read is no line.

Only fields are asked for that no user can fill with text of their own: a name or a comment may hold line breaks,
and would let one job speak for another.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial

_NUMBER = re.compile(r"(\d{1,18})(?:_(\d{1,9}))?", re.ASCII)
_SHIFT = 64
SQUEUE_FIELDS = (
    *("JobArrayID", "State", "UserID", "exit_code", "StartTime", "EndTime", "NodeList"),
    *("RestartCnt", "TimeUsed", "TimeLimit", "PriorityLong", "Partition", "SubmitTime", "tres-alloc"),
    "Reason",
)
SACCT_FIELDS = ("JobID", "State", "UID", "ExitCode", "Start", "End", "NodeList", "Reason")
SINFO_FIELDS = ("NodeList", "StateLong", "CPUs", "Memory", "Gres", "Features", "Reason")
SLURM_WAITING_STATES = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
SLURM_TERMINAL_STATES = frozenset(
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
_MOST_HOSTS = 10_000
_MOST_KEPT = 32_768  # lines of the queue
_PAIR = re.compile(r"(\w+)=(\S*)")
_CLOSED = ("INACTIVE", "DRAIN")  # takes no new jobs; one that is DOWN lets them wait
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGTP]?)([nc]?)")
_MIB = {"": 1 / 2**20, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_SPAN = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2}(?:\.\d{1,6})?)")
_WHOLE = re.compile(r"\d{1,15}")
_GPUS = "gres/gpu"
_SETTING = re.compile(r"(\w+)\s*= ?(.*)")


class ArrayElementId(int):
    """The number of an array's element. It goes wherever the number of a job goes, is equal to no other, and is
    written as Slurm writes it."""

    @classmethod
    def of(cls, array: int, index: int) -> "ArrayElementId":
        return cls((index + 1) << _SHIFT | array)

    @property
    def array_job_id(self) -> int:
        return self & (1 << _SHIFT) - 1

    @property
    def index(self) -> int:
        return (self >> _SHIFT) - 1

    def __str__(self) -> str:
        return f"{self.array_job_id}_{self.index}"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def parse_job_id(text: str) -> int | None:
    """`12` or `12_3`; None: neither, as `12_[3-9]`, which stands for several."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    return ArrayElementId.of(int(found[1]), int(found[2])) if found[2] else int(found[1])


@dataclass(frozen=True, slots=True)
class QueueDetails:
    """What only Slurm's queue knows of a job. Times are kept as they are printed: few are ever needed."""

    restart_count: int = 0  # how often it was put back into the queue
    time_used: str = "0:00"  # time it ran, without that in which it was suspended
    time_limit: str = "UNLIMITED"
    priority: int = 0  # 0: held
    partition: str = ""
    submit_time: str = ""  # seconds since 1970
    tres: str = ""  # what it asks for or has: `cpu=2,mem=1G,node=1,gres/gpu=3`


_NOWHERE = QueueDetails()


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as Slurm sees it."""

    job_id: int
    state: str
    uid: int
    exit_code: int
    signal: int  # that ended it; 0: none
    started_at: datetime | None
    ended_at: datetime | None
    nodes: tuple[str, ...]
    reason: str
    squeue_details: QueueDetails | None = None  # None: not of squeue

    @property
    def is_waiting(self) -> bool:
        return self.state in SLURM_WAITING_STATES

    @property
    def is_terminal(self) -> bool:
        """Nothing of it is left; while it is COMPLETING something is."""
        return self.state in SLURM_TERMINAL_STATES

    @property
    def queue_details(self) -> QueueDetails:
        return self.squeue_details or _NOWHERE

    @property
    def has_started(self) -> bool:
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


def parse_squeue_jobs(text: str) -> Iterator[SlurmJob]:
    """Lines of SQUEUE_FIELDS. The exit code there is the status of wait(2)."""
    return _jobs(text, from_status=True)


def parse_sacct_jobs(text: str) -> Iterator[SlurmJob]:
    """Lines of SACCT_FIELDS. The exit code there is `code:signal`."""
    return _jobs(text, from_status=False)


def parse_sinfo_nodes(text: str) -> Iterator[SlurmNode]:
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
            tuple(parse_gres_gpus(gres)),
            tuple(word for word in features.split(",") if word and word != "(null)"),
            None if reason in ("none", "(null)", "") else reason,
        )


def parse_gres_gpus(gres: str) -> Iterator[tuple[str, int]]:
    """`gpu:a100:4(S:0-1),gpu:t4:2` → type and count of each."""
    for word in re.sub(r"\([^)]*\)", "", gres).split(","):
        if found := _GRES.fullmatch(word):
            yield found[1] or "gpu", int(found[2])


def parse_job_devices(text: str, nodes: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """The GPUs a job has on each of these nodes, of `scontrol --details show job`.

    Its owner can write into that text, about this job only; so it serves to show, not to decide.
    """
    found: dict[str, tuple[int, ...]] = {}
    for hosts, indexes in _ALLOCATED.findall(text):
        numbers = tuple(int(number) for number in expand_host_list(f"[{indexes}]") if _are_numbers(number))
        found |= {node: numbers for node in expand_host_list(hosts) if node in nodes}
    return found


def expand_host_list(text: str) -> tuple[str, ...]:
    """`gpu[01-03,7],login` → the name of each node."""
    if "[" not in text and "," not in text:
        return (text,) if text else ()
    return tuple(name for part in _outer_parts(text) for name in _expand(part))[:_MOST_HOSTS]


def parse_submitted_job_id(text: str) -> int | None:
    """What `sbatch --parsable` prints: `12`, or `12;cluster`."""
    number = text.strip().partition(";")[0]
    return int(number) if _are_numbers(number) else None


def parse_job_comments(text: str) -> Iterator[tuple[int, str]]:
    """Of lines `JobArrayID|Comment|`: number and comment. Only a hint, as anybody may write any comment."""
    for line in text.splitlines():
        word, _, said = line.rstrip("|").partition("|")
        if (number := parse_job_id(word)) is not None:
            yield number, said


def random_delimiter() -> str:
    """What nobody can have written into a name."""
    return f"_{secrets.token_hex(8)}_"


def parse_job_names(text: str, mark: str) -> Iterator[tuple[int, str]]:
    """Of `12_3MARKnameMARK` a line, where names may hold anything, also line breaks."""
    words = text.split(mark)
    for number, name in zip(words[::2], words[1::2], strict=False):
        if (known := parse_job_id(number.strip())) is not None:
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
    number = parse_job_id(words[0])
    if len(words) != fields or number is None or not _is_number(words[2]):
        return None
    status = (0, 0) if words[3] == "0" else _status(words[3], from_status=from_status)
    if status is None:
        return None
    code, signal = status
    return SlurmJob(
        job_id=number,
        state=words[1].partition(" ")[0],  # "CANCELLED by 1000"
        uid=int(words[2]),
        exit_code=code,
        signal=signal,
        started_at=parse_timestamp(words[4]),
        ended_at=parse_timestamp(words[5]),
        nodes=expand_host_list("" if words[6] in ("None assigned", "(null)") else words[6]),
        reason=words[-1].rstrip("|"),
        squeue_details=_standing(words) if from_status else None,
    )


def _status(text: str, *, from_status: bool) -> tuple[int, int] | None:
    """Exit code and signal."""
    found = _STATUS.fullmatch(text)
    if found is None:
        return None
    code, signal = int(found[1]), int(found[2] or 0)
    return (code >> 8, code & 0x7F) if from_status else (code, signal)


def _standing(words: list[str]) -> QueueDetails:
    restarts, used, limit, priority, partition, submitted, tres = words[7:14]
    return QueueDetails(_number(restarts), used, limit, _number(priority), partition, submitted, tres)


def _number(text: str) -> int:
    return int(text) if _is_number(text) else 0


def parse_timestamp(text: str) -> datetime | None:
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


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    name: str
    nodes: frozenset[str]
    is_default: bool = False
    accepts_jobs: bool = True
    max_run_seconds: int | None = None  # that a job may run; None: as long as it likes
    max_nodes: int | None = None  # that a job may have


def parse_partitions(text: str) -> dict[str, SlurmPartition]:
    """Of `scontrol --oneliner show partition`: words of the admins of Slurm."""
    found = (_partition(dict(_PAIR.findall(line))) for line in text.splitlines())
    return {one.name: one for one in found if one is not None}


def _partition(words: Mapping[str, str]) -> SlurmPartition | None:
    name = words.get("PartitionName")
    if not name:
        return None
    nodes = words.get("Nodes", "")
    return SlurmPartition(
        name=name,
        nodes=frozenset(expand_host_list("" if nodes == "(null)" else nodes)),
        is_default=words.get("Default") == "YES",
        accepts_jobs=words.get("State") not in _CLOSED,
        max_run_seconds=parse_whole_seconds(words.get("MaxTime", "")),
        max_nodes=parse_whole_number(words.get("MaxNodes", "")),
    )


@dataclass(frozen=True, slots=True)
class SlurmReservation:
    name: str
    nodes: tuple[str, ...]
    starts_at: datetime
    ends_at: datetime
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()


def parse_reservations(text: str) -> Iterator[SlurmReservation]:
    """Of `scontrol --oneliner show reservation`, with times in seconds since 1970."""
    for line in text.splitlines():
        words = dict(_PAIR.findall(line))
        name, begin, end = (words.get(key, "") for key in ("ReservationName", "StartTime", "EndTime"))
        if name and begin.isdecimal() and end.isdecimal():
            nodes = expand_host_list(_filled(words, "Nodes"))
            people, accounts = (tuple(_filled(words, key).split(",")) for key in ("Users", "Accounts"))
            starts_at, ends_at = (datetime.fromtimestamp(int(moment), UTC) for moment in (begin, end))
            yield SlurmReservation(name, nodes, starts_at, ends_at, people, accounts)


def _filled(words: Mapping[str, str], key: str) -> str:
    value = words.get(key, "")
    return "" if value == "(null)" else value


def parse_size_mib(text: str) -> float | None:
    """`219768K`, `500M`, `1.5G`; the `n` and `c` of older versions (of a node, of a cpu) say nothing here."""
    found = _SIZE.fullmatch(text)
    return None if found is None else float(found[1]) * _MIB[found[2]]


def parse_duration_seconds(text: str) -> float | None:
    """`00:02.620`, `01:02:03`, `2-00:00:00`."""
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = found.groups()
    return int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)


def parse_whole_seconds(text: str) -> int | None:
    """The same in whole seconds; None: `UNLIMITED`, `INVALID` and the like."""
    span = parse_duration_seconds(text)
    return None if span is None else int(span)


def parse_whole_number(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) and text.isascii() else None


def parse_tres(text: str) -> dict[str, str]:
    """`billing=2,cpu=2,gres/gpu:a100=2,mem=500M` by name."""
    pairs = (word.partition("=") for word in text.split(","))
    return {name: value for name, _, value in pairs if name and value}


def gpus_in_tres(resources: Mapping[str, str]) -> tuple[int, str | None]:
    """How many, and their type where Slurm accounts for it and there is but one."""
    typed = {
        name.partition(":")[2]: count
        for name, value in resources.items()
        if name.startswith(f"{_GPUS}:") and (count := parse_whole_number(value))
    }
    total = parse_whole_number(resources.get(_GPUS, "")) or sum(typed.values())
    return total, next(iter(typed)) if len(typed) == 1 else None


def parse_slurm_config(text: str) -> dict[str, str]:
    """Of `scontrol show config`: written by Slurm and its admins."""
    found = (_SETTING.fullmatch(line.rstrip()) for line in text.splitlines())
    return {one[1]: one[2] for one in found if one}


def parse_raw_job_ids(text: str) -> dict[int, int]:
    """Of lines `JobArrayID|JobID|` of squeue: the number Slurm has inside for each element of an array."""
    pairs = (line.split("|")[:2] for line in text.splitlines() if line.count("|") >= 1)
    read = ((parse_job_id(shown), parse_job_id(inner)) for shown, inner in pairs)
    return {shown: inner for shown, inner in read if shown is not None and inner is not None}
