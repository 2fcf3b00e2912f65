"""What jobs have used, once they are over; what running jobs use; how busy nodes are.

What a job has used is asked of Slurm's accounting, for many at once. `attempts/12.1.owed` is what is left of the
journal's entry of an attempt whose use is not yet known: it was that entry until the end was recorded, so that a
killed server loses none. The accounting may be away, or behind, for hours.

What running jobs use is asked of `sstat`, which asks every node of a job, some 30 ms for each: so a few are asked
for at a time, now and then, in a thread of its own, and until the next look the last one counts.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heliostat.engines.slurm.client import SlurmClient, SlurmRefused, format_columns, format_job_id_lists
from heliostat.engines.slurm.command_output import (
    SLURM_TERMINAL_STATES,
    ArrayElementId,
    gpus_in_tres,
    parse_duration_seconds,
    parse_job_id,
    parse_size_mib,
    parse_tres,
    parse_whole_number,
)
from heliostat.engines.slurm.journal import parse_journal_entry
from heliostat.engines.slurm.timing import RefreshedValue
from heliostat.engines.slurm.tracked_job import TrackedJobs
from heliostat.errors import EngineUnavailable
from heliostat.models import AttemptId, AttemptUsage, DeviceSample, UsageSample

SACCT_USAGE_FIELDS = ("JobID", "UID", "State", "ElapsedRaw", "TotalCPU", "MaxRSS", "AveRSS", "NTasks", "AllocTRES")
"""None that a user could fill with text of their own."""
_SUFFIX = ".owed"
_ASKED_AT_ONCE = 500  # jobs whose use is asked for
_LONGEST_WAIT_SECONDS = 2 * 86400.0  # after which what the accounting does not know is not asked for again
_HURRY_SECONDS = 600.0  # after which what is known of an unfinished step is taken as it is
SSTAT_FIELDS = ("JobID", "TRESUsageInTot")
"""None that a user could fill with text of their own."""
MAX_JOBS_PER_QUERY = 50
_LATE = 2.5  # times the time between two looks: what is older than that is not shown
SINFO_LOAD_FIELDS = ("NodeList", "CPUs", "CPUsLoad", "Memory", "FreeMem")


@dataclass(frozen=True, slots=True)
class AccountedUsage:
    """What the accounting says of a job."""

    uid: int
    usage: AttemptUsage
    is_complete: bool  # the job and all its steps are over there


@dataclass(frozen=True, slots=True)
class PendingUsage:
    """An attempt whose use is to be found out."""

    attempt_id: AttemptId
    uid: int
    slurm_job_id: int
    waiting_since: float  # seconds since 1970

    def settle(self, used: AccountedUsage | None, now: float) -> tuple[bool, AttemptUsage | None]:
        """Whether it need not be asked for again, and what is known then."""
        waited = now - self.waiting_since
        if used is None or used.uid != self.uid:
            return waited > _LONGEST_WAIT_SECONDS, None
        return used.is_complete or waited > _HURRY_SECONDS, used.usage


class PendingUsageFolder:
    """The attempts whose use is to be found out, on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, attempt_ids: Iterable[AttemptId]) -> None:
        """Their traces are no longer needed but for this. Those without one owe nothing."""
        for attempt_id in attempt_ids:
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._folder / f"{attempt_id}.slurm", self._path(attempt_id))

    def list_oldest(self, most: int) -> list[PendingUsage]:
        """The oldest; what never came to Slurm is dropped."""
        found = [owed for path in self._folder.glob(f"*{_SUFFIX}") if (owed := self._read(path))]
        return sorted(found, key=lambda owed: owed.waiting_since)[:most]

    def remove(self, attempt_ids: Iterable[AttemptId]) -> None:
        for attempt_id in attempt_ids:
            self._path(attempt_id).unlink(missing_ok=True)

    def _read(self, path: Path) -> PendingUsage | None:
        try:
            entry, since = parse_journal_entry(path.read_text(encoding="utf-8")), path.stat().st_ctime
        except FileNotFoundError:
            return None
        if entry.uid is None or entry.slurm_job_id is None:
            path.unlink(missing_ok=True)
            return None
        return PendingUsage(
            path.name.removesuffix(_SUFFIX), entry.uid, entry.slurm_job_id, min(since, time.time())
        )

    def _path(self, attempt_id: AttemptId) -> Path:
        return self._folder / f"{attempt_id}{_SUFFIX}"


def collect_settled_usage(
    owed_usage: PendingUsageFolder, client: SlurmClient
) -> dict[AttemptId, AttemptUsage | None]:
    """Of some of those whose use is to be found out, as far as that is settled; None: it never will be known."""
    owed = owed_usage.list_oldest(_ASKED_AT_ONCE)
    try:
        known = read_usage(client, [one.slurm_job_id for one in owed]) if owed else {}
    except EngineUnavailable:
        return {}
    except SlurmRefused:
        known = {}  # there is no accounting
    told = [(one.attempt_id, *one.settle(known.get(one.slurm_job_id), time.time())) for one in owed]
    return {attempt_id: usage for attempt_id, is_settled, usage in told if is_settled}


def read_usage(client: SlurmClient, numbers: Iterable[int]) -> dict[int, AccountedUsage]:
    """What these have used, as far as the accounting knows; raises SlurmRefused where there is none."""
    argv = ["sacct", "--parsable2", "--noheader", f"--format={','.join(SACCT_USAGE_FIELDS)}"]
    found: dict[int, AccountedUsage] = {}
    for wanted in format_job_id_lists(numbers):
        found |= parse_sacct_usage(client.run_command([*argv, f"--jobs={wanted}"]))
    return found


def parse_sacct_usage(text: str) -> dict[int, AccountedUsage]:
    """By job, of lines of USAGE_FIELDS: the line of a job, then those of its steps. Pure."""
    found: dict[int, AccountedUsage] = {}
    for line in text.splitlines():
        words = line.split("|")
        number = parse_job_id(words[0].partition(".")[0])
        if len(words) != len(SACCT_USAGE_FIELDS) or number is None:
            continue
        if "." not in words[0]:
            found.pop(number, None)
            if used := _of_job(words):
                found[number] = used
        elif number in found:
            found[number] = _with_step(found[number], words)
    return found


def _of_job(words: list[str]) -> AccountedUsage | None:
    _, uid, state, elapsed, cpu, *_, resources = words
    seconds = parse_whole_number(elapsed)
    if seconds is None or parse_whole_number(uid) is None:
        return None
    gpus, _ = gpus_in_tres(parse_tres(resources))
    state = state.partition(" ")[0]
    usage = AttemptUsage(
        float(seconds),
        cpu_seconds=parse_duration_seconds(cpu) or None,
        gpu_seconds=float(gpus * seconds) if gpus else None,
        out_of_memory=state == "OUT_OF_MEMORY",
    )
    return AccountedUsage(int(uid), usage, state in SLURM_TERMINAL_STATES)


def _with_step(used: AccountedUsage, words: list[str]) -> AccountedUsage:
    _, _, state, _, _, largest, mean, tasks, _ = words
    state, usage = state.partition(" ")[0], used.usage
    usage = AttemptUsage(
        usage.elapsed_seconds,
        usage.cpu_seconds,
        _largest(usage.memory_mib, parse_size_mib(largest), _of_all(mean, tasks)),
        usage.gpu_seconds,
        usage.out_of_memory or state == "OUT_OF_MEMORY",
    )
    return AccountedUsage(used.uid, usage, used.is_complete and state in SLURM_TERMINAL_STATES)


def _of_all(mean: str, tasks: str) -> float | None:
    """MaxRSS is that of the largest task; all of them together held about this."""
    each, count = parse_size_mib(mean), parse_whole_number(tasks)
    return None if each is None or count is None else each * count


def _largest(*values: float | None) -> float | None:
    return max((value for value in values if value), default=None)


@dataclass(frozen=True, slots=True)
class LiveUsage:
    """What a job uses, all its tasks together."""

    cpu_seconds: float = 0.0  # since it started
    memory_mib: float = 0.0
    gpu_percent: float | None = None  # of all its GPUs: 200 are two full ones; None: Slurm does not say
    gpu_memory_mib: float | None = None


def read_live_usage(client: SlurmClient, numbers: Sequence[int]) -> dict[int, LiveUsage]:
    """What these use now, as far as their nodes say; jobs that are over are left out."""
    arrays = dict.fromkeys(number.array_job_id for number in numbers if isinstance(number, ArrayElementId))
    inner = client.raw_job_ids(arrays)
    wanted = [inner.get(one) if isinstance(one, ArrayElementId) else int(one) for one in numbers]
    argv = ["sstat", "--allsteps", "--parsable2", "--noheader", f"--format={','.join(SSTAT_FIELDS)}"]
    lives: dict[int, LiveUsage] = {}
    for words in format_job_id_lists(one for one in wanted if one is not None):
        lives |= parse_sstat_usage(client.run_command([*argv, f"--jobs={words}"]))
    return by_known_job_id(numbers, lives, inner)


def parse_sstat_usage(text: str) -> dict[int, LiveUsage]:
    """By job, of lines of LIVE_FIELDS: one for each step. Jobs have the numbers Slurm has for them inside, also
    elements of arrays."""
    found: dict[int, LiveUsage] = {}
    for line in text.splitlines():
        step, _, used = line.partition("|")
        number = parse_job_id(step.partition(".")[0])
        if number is not None and (live := _of_step(parse_tres(used.rstrip("|")))):
            found[number] = _together(found.get(number, LiveUsage()), live)
    return found


def by_known_job_id(
    numbers: Iterable[int], lives: Mapping[int, LiveUsage], inner: Mapping[int, int]
) -> dict[int, LiveUsage]:
    """The same by the numbers we know them by."""
    named = {number: inner.get(number) if isinstance(number, ArrayElementId) else number for number in numbers}
    return {number: lives[key] for number, key in named.items() if key is not None and key in lives}


def _of_step(used: Mapping[str, str]) -> LiveUsage | None:
    cpu, memory = parse_duration_seconds(used.get("cpu", "")), parse_size_mib(used.get("mem", ""))
    if cpu is None and memory is None:
        return None
    percent = parse_size_mib(used.get("gres/gpuutil", ""))  # a plain number, which is read as one of bytes
    gpu_memory = parse_size_mib(used.get("gres/gpumem", ""))
    return LiveUsage(cpu or 0.0, memory or 0.0, None if percent is None else percent * 2**20, gpu_memory)


def _together(one: LiveUsage, other: LiveUsage) -> LiveUsage:
    return LiveUsage(
        one.cpu_seconds + other.cpu_seconds,
        one.memory_mib + other.memory_mib,
        _sum(one.gpu_percent, other.gpu_percent),
        _sum(one.gpu_memory_mib, other.gpu_memory_mib),
    )


def _sum(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else one + other


@dataclass(frozen=True, slots=True)
class RunningJob:
    """An attempt that runs in Slurm."""

    slurm_job_id: int
    device_count: int  # GPUs it holds


@dataclass(frozen=True, slots=True)
class _Seen:
    live: LiveUsage
    reading: UsageSample
    at: float  # by the monotonic clock


ReadLiveUsage = Callable[[Sequence[int]], Mapping[int, LiveUsage]]


def find_running_jobs(tracked: TrackedJobs) -> dict[AttemptId, RunningJob]:
    """Those that run, as of the newest look. Any thread may ask."""
    found: dict[AttemptId, RunningJob] = {}
    for one in list(tracked.jobs.values()):
        if one.is_running and one.slurm_job_id is not None and one.can_receive_signals:
            job = one.attempt.job
            found[one.attempt.id] = RunningJob(one.slurm_job_id, job.resources.device_count * job.placement.tasks)
    return found


class LiveUsageSampler:
    """`seconds` between two looks; 0: nobody looks."""

    def __init__(
        self,
        read: ReadLiveUsage,
        seconds: float,
        running: Callable[[], Mapping[AttemptId, RunningJob]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._seconds, self._running, self._clock = read, seconds, running, clock
        self._looks: RefreshedValue[None] = RefreshedValue("slurm_live_use", self.refresh, seconds)
        self._asked: dict[AttemptId, float] = {}  # when each was last asked for
        self._seen: dict[AttemptId, _Seen] = {}

    def readings(self) -> dict[AttemptId, UsageSample]:
        """Of those that run now, as far as it is known. Returns at once, and begins a look if the last is old."""
        if not self._seconds:
            return {}
        self._looks.refresh_if_stale()
        running, now, seen = self._running(), self._clock(), self._seen
        oldest = now - _LATE * self._seconds * max(1, math.ceil(len(running) / MAX_JOBS_PER_QUERY))
        return {one: seen[one].reading for one in running if one in seen and seen[one].at > oldest}

    def refresh(self) -> None:
        """At those that have waited longest for it."""
        running = self._running()
        asked = {one: at for one, at in self._asked.items() if one in running}
        chosen = sorted(running, key=lambda one: asked.get(one, -math.inf))[:MAX_JOBS_PER_QUERY]
        found = self._read([running[one].slurm_job_id for one in chosen]) if chosen else {}
        now = self._clock()
        self._asked = asked | dict.fromkeys(chosen, now)
        seen = {one: old for one, old in self._seen.items() if one in running}
        for one in chosen:
            if (live := found.get(running[one].slurm_job_id)) is not None:
                seen[one] = _Seen(live, _reading(live, seen.get(one), running[one], now), now)
        self._seen = seen


def _reading(live: LiveUsage, before: _Seen | None, running: RunningJob, now: float) -> UsageSample:
    """Cpus are those kept busy since the look before: of the first nothing is known."""
    cpus = None
    if before is not None and now > before.at:
        cpus = max(0.0, live.cpu_seconds - before.live.cpu_seconds) / (now - before.at)
    devices: tuple[DeviceSample, ...] = ()
    if running.device_count and live.gpu_percent is not None:
        each = min(100.0, live.gpu_percent / running.device_count)
        memory = None if live.gpu_memory_mib is None else live.gpu_memory_mib / running.device_count
        devices = (DeviceSample(each, memory),) * running.device_count
    return UsageSample(cpus, live.memory_mib, devices)


def read_node_loads(client: SlurmClient) -> dict[str, UsageSample]:
    """How busy each node is."""
    argv = ["sinfo", "--noheader", "--all", "--Node", f"--Format={format_columns(SINFO_LOAD_FIELDS)}"]
    return parse_node_loads(client.run_command(argv))


def parse_node_loads(text: str) -> dict[str, UsageSample]:
    """Lines of LOAD_FIELDS; what a node does not say ("N/A") is not known.

    Slurm knows a load, the number of processes that want to run, and counts files in the page cache as in use.
    """
    found: dict[str, UsageSample] = {}
    for line in text.splitlines():
        words = line.rstrip("|").split("|")
        if len(words) == len(SINFO_LOAD_FIELDS):
            name, cpus, load, memory, free = words[0], *map(_load_number, words[1:])
            in_use = None if memory is None or free is None else max(0.0, memory - free)
            found[name] = UsageSample(None if load is None or cpus is None else min(load, cpus), in_use)
    return found


def _load_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < 1e15 else None
