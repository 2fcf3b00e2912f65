"""Parsers of the output of Slurm's commands (squeue, sacct, sinfo, scontrol). Pure. Unreadable lines are skipped.

Only fields without user-defined text are requested: a name or a comment may contain line breaks and could imitate
the line of another job.
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
_GRES = re.compile(r"gpu:(?:([\w.+-]+):)?(\d{1,4})")
_ALLOCATED = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\d+ GRES=gpu[^( ]*\(IDX:([\d,-]+)\)")
_MAX_HOSTS = 10_000
_MAX_CACHED_LINES = 32_768
_PAIR = re.compile(r"(\w+)=(\S*)")
_CLOSED = ("INACTIVE", "DRAIN")  # accepts no new jobs; in a partition that is DOWN, jobs can wait
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGTP]?)([nc]?)")
_MIB = {"": 1 / 2**20, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_SPAN = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2}(?:\.\d{1,6})?)")
_WHOLE = re.compile(r"\d{1,15}")
_GPUS = "gres/gpu"
_SETTING = re.compile(r"(\w+)\s*= ?(.*)")


class ArrayElementId(int):
    """Id of an array element, usable like a job id. It equals no other id and is formatted as in Slurm: `12_3`."""

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
    """`12` or `12_3`; None: neither, such as `12_[3-9]`."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    return ArrayElementId.of(int(match[1]), int(match[2])) if match[2] else int(match[1])


@dataclass(frozen=True, slots=True)
class QueueDetails:
    """Fields of a job that only squeue has. Times stay text: few of them are ever parsed."""

    restart_count: int = 0  # how often it was requeued
    time_used: str = "0:00"  # run time without suspensions
    time_limit: str = "UNLIMITED"
    priority: int = 0  # 0: held
    partition: str = ""
    submit_time: str = ""  # seconds since 1970
    tres: str = ""  # requested or allocated: `cpu=2,mem=1G,node=1,gres/gpu=3`


_NO_DETAILS = QueueDetails()


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job in Slurm."""

    job_id: int
    state: str
    uid: int
    exit_code: int
    signal: int  # that ended it; 0: none
    started_at: datetime | None
    ended_at: datetime | None
    nodes: tuple[str, ...]
    reason: str
    squeue_details: QueueDetails | None = None  # None: not from squeue

    @property
    def is_waiting(self) -> bool:
        return self.state in SLURM_WAITING_STATES

    @property
    def is_terminal(self) -> bool:
        """All its processes have ended. False while it is COMPLETING."""
        return self.state in SLURM_TERMINAL_STATES

    @property
    def queue_details(self) -> QueueDetails:
        return self.squeue_details or _NO_DETAILS

    @property
    def has_started(self) -> bool:
        """It has or had nodes: it runs or ran."""
        return bool(self.nodes) and self.started_at is not None and not self.is_waiting


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node in Slurm."""

    name: str
    state: str  # with Slurm's suffixes: "idle*" does not respond
    cpus: int
    memory_mib: int
    gpus: tuple[tuple[str, int], ...]  # type and number
    features: tuple[str, ...]
    reason: str | None


def parse_squeue_jobs(text: str) -> Iterator[SlurmJob]:
    """Lines of SQUEUE_FIELDS. The exit code there is the status of wait(2)."""
    return _jobs(text, from_status=True)


def parse_sacct_jobs(text: str) -> Iterator[SlurmJob]:
    """Lines of SACCT_FIELDS. The exit code there is `code:signal`."""
    return _jobs(text, from_status=False)


def parse_sinfo_nodes(text: str) -> Iterator[SlurmNode]:
    """Lines of SINFO_FIELDS; sinfo lists a node for each of its partitions, the result has it once."""
    names: set[str] = set()
    for line in text.splitlines():
        words = line.split("|", len(SINFO_FIELDS) - 1)
        if len(words) < len(SINFO_FIELDS) or not _are_numbers(words[2], words[3]) or words[0] in names:
            continue
        names.add(words[0])
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
    """`gpu:a100:4(S:0-1),gpu:1g.10gb:2` → type and count of each."""
    for word in re.sub(r"\([^)]*\)", "", gres).split(","):
        if found := _GRES.fullmatch(word):
            yield found[1] or "gpu", int(found[2])


def parse_job_devices(text: str, nodes: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Indexes of a job's GPUs on each of these nodes, from `scontrol --details show job`.

    The job's owner can influence this text, so it is only for display, not for decisions.
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
    return tuple(name for part in _outer_parts(text) for name in _expand(part))[:_MAX_HOSTS]


def parse_submitted_job_id(text: str) -> int | None:
    """Output of `sbatch --parsable`: `12`, or `12;cluster`."""
    number = text.strip().partition(";")[0]
    return int(number) if _are_numbers(number) else None


def parse_job_comments(text: str) -> Iterator[tuple[int, str]]:
    """From lines `JobArrayID|Comment|`. Not trustworthy: users can set any comment, also with line breaks."""
    for line in text.splitlines():
        word, _, comment = line.rstrip("|").partition("|")
        if (number := parse_job_id(word)) is not None:
            yield number, comment


def random_delimiter() -> str:
    """A delimiter that no job name contains."""
    return f"_{secrets.token_hex(8)}_"


def parse_job_names(text: str, mark: str) -> Iterator[tuple[int, str]]:
    """From lines `12_3MARKnameMARK`; names may contain anything, including line breaks."""
    words = text.split(mark)
    for number, name in zip(words[::2], words[1::2], strict=False):
        if (known := parse_job_id(number.strip())) is not None:
            yield known, name


def _jobs(text: str, *, from_status: bool) -> Iterator[SlurmJob]:
    read = _read_cached if from_status else partial(_read, from_status=False)
    return (job for line in text.splitlines() if (job := read(line)) is not None)


@lru_cache(_MAX_CACHED_LINES)
def _read_cached(line: str) -> SlurmJob | None:
    """The lines of waiting and ended jobs do not change between polls."""
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
        squeue_details=_queue_details(words) if from_status else None,
    )


def _status(text: str, *, from_status: bool) -> tuple[int, int] | None:
    """Exit code and signal."""
    match = _STATUS.fullmatch(text)
    if match is None:
        return None
    code, signal = int(match[1]), int(match[2] or 0)
    return (code >> 8, code & 0x7F) if from_status else (code, signal)


def _queue_details(words: list[str]) -> QueueDetails:
    restarts, used, limit, priority, partition, submitted, tres = words[7:14]
    return QueueDetails(_number(restarts), used, limit, _number(priority), partition, submitted, tres)


def _number(text: str) -> int:
    return int(text) if _is_number(text) else 0


def parse_timestamp(text: str) -> datetime | None:
    """From seconds since 1970 (SLURM_TIME_FORMAT=%s). None for "N/A", "Unknown" and the like."""
    return datetime.fromtimestamp(int(text), UTC) if _is_number(text) and 0 < int(text) < 2**33 else None


def parse_planned_start(text: str) -> datetime | None:
    """From `sbatch: Job 12 to start at 1763500000 using 1 processors on nodes n1 in partition main`."""
    match = re.search(r"^sbatch: Job \d+ to start at (\d+) ", text, re.MULTILINE)
    return parse_timestamp(match[1]) if match else None


def _are_numbers(*words: str) -> bool:
    return all(map(_is_number, words))


def _is_number(word: str) -> bool:
    return word.isdecimal() and word.isascii() and len(word) <= 18


def _outer_parts(text: str) -> Iterator[str]:
    """Split at commas outside of brackets."""
    return (part for part in re.split(r",(?![^\[]*\])", text) if part)


def _expand(part: str) -> Iterator[str]:
    """Expands the brackets of one part from left to right."""
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
    if not (dash and _are_numbers(first, last)) or int(last) - int(first) >= _MAX_HOSTS:
        yield item
        return
    yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    name: str
    nodes: frozenset[str]
    is_default: bool = False
    accepts_jobs: bool = True
    max_run_seconds: int | None = None  # per job; None: no limit
    max_nodes: int | None = None  # per job; None: no limit


def parse_partitions(text: str) -> dict[str, SlurmPartition]:
    """From `scontrol --oneliner show partition`."""
    partitions = (_partition(dict(_PAIR.findall(line))) for line in text.splitlines())
    return {partition.name: partition for partition in partitions if partition is not None}


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
    """From `scontrol --oneliner show reservation`, with times in seconds since 1970."""
    for line in text.splitlines():
        words = dict(_PAIR.findall(line))
        name, begin, end = (words.get(key, "") for key in ("ReservationName", "StartTime", "EndTime"))
        if name and begin.isdecimal() and end.isdecimal():
            nodes = expand_host_list(_value(words, "Nodes"))
            users, accounts = (tuple(_value(words, key).split(",")) for key in ("Users", "Accounts"))
            starts_at, ends_at = (datetime.fromtimestamp(int(moment), UTC) for moment in (begin, end))
            yield SlurmReservation(name, nodes, starts_at, ends_at, users, accounts)


def _value(words: Mapping[str, str], key: str) -> str:
    value = words.get(key, "")
    return "" if value == "(null)" else value


def parse_size_mib(text: str) -> float | None:
    """`219768K`, `500M`, `1.5G`; the suffixes `n` and `c` of older versions (per node, per cpu) are ignored."""
    match = _SIZE.fullmatch(text)
    return None if match is None else float(match[1]) * _MIB[match[2]]


def parse_duration_seconds(text: str) -> float | None:
    """`00:02.620`, `01:02:03`, `2-00:00:00`."""
    match = _SPAN.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    return int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)


def parse_whole_seconds(text: str) -> int | None:
    """As `parse_duration_seconds`, without fractions. None for `UNLIMITED`, `INVALID` and the like."""
    seconds = parse_duration_seconds(text)
    return None if seconds is None else int(seconds)


def parse_whole_number(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) and text.isascii() else None


def parse_tres(text: str) -> dict[str, str]:
    """`billing=2,cpu=2,gres/gpu:a100=2,mem=500M` by name."""
    pairs = (word.partition("=") for word in text.split(","))
    return {name: value for name, _, value in pairs if name and value}


def gpus_in_tres(resources: Mapping[str, str]) -> tuple[int, str | None]:
    """Number of GPUs, and their type if Slurm accounts for types and there is only one."""
    typed = {
        name.partition(":")[2]: count
        for name, value in resources.items()
        if name.startswith(f"{_GPUS}:") and (count := parse_whole_number(value))
    }
    total = parse_whole_number(resources.get(_GPUS, "")) or sum(typed.values())
    return total, next(iter(typed)) if len(typed) == 1 else None


def parse_slurm_config(text: str) -> dict[str, str]:
    """From `scontrol show config`."""
    matches = (_SETTING.fullmatch(line.rstrip()) for line in text.splitlines())
    return {match[1]: match[2] for match in matches if match}


def parse_raw_job_ids(text: str) -> dict[int, int]:
    """From squeue's lines `JobArrayID|JobID|`: Slurm's internal id of each array element."""
    pairs = (line.split("|")[:2] for line in text.splitlines() if line.count("|") >= 1)
    ids = ((parse_job_id(shown), parse_job_id(raw)) for shown, raw in pairs)
    return {shown: raw for shown, raw in ids if shown is not None and raw is not None}
