"""Resource usage in Slurm: of ended jobs (sacct), of running jobs (sstat) and of nodes (sinfo).

Ended jobs: read from the accounting, many with one command. `attempts/12.1.owed` is the renamed journal entry of
an attempt whose usage is not known yet, so that a killed server loses none. The accounting may be unavailable or
lag behind for hours.

Running jobs: `sstat` queries every node of a job, about 30 ms each. So only some jobs are sampled at a time, in a
background thread, and the last sample is used until the next.
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
from heliostat.engines.slurm.polling import RefreshedValue
from heliostat.engines.slurm.tracked_jobs import TrackedJobs
from heliostat.errors import EngineUnavailable
from heliostat.models import AttemptId, AttemptUsage, DeviceSample, UsageSample

SACCT_USAGE_FIELDS = ("JobID", "UID", "State", "ElapsedRaw", "TotalCPU", "MaxRSS", "AveRSS", "NTasks", "AllocTRES")
"""Without fields that contain text of users."""
_SUFFIX = ".owed"
_MAX_PENDING_PER_CALL = 500
_MAX_WAIT_SECONDS = 2 * 86400.0  # then a job that the accounting does not have is given up
_UNFINISHED_STEP_SECONDS = 600.0  # then the usage of a job with unfinished steps is accepted
SSTAT_FIELDS = ("JobID", "TRESUsageInTot")
"""Without fields that contain text of users."""
MAX_JOBS_PER_QUERY = 50
_MAX_AGE_INTERVALS = 2.5  # a sample that is older than this many intervals is not shown
SINFO_LOAD_FIELDS = ("NodeList", "CPUs", "CPUsLoad", "Memory", "FreeMem")


@dataclass(frozen=True, slots=True)
class AccountedUsage:
    """Usage of a job according to the accounting."""

    uid: int
    usage: AttemptUsage
    is_complete: bool  # the job and all its steps have ended in the accounting


@dataclass(frozen=True, slots=True)
class PendingUsage:
    """An attempt whose usage is not known yet."""

    attempt_id: AttemptId
    uid: int
    slurm_job_id: int
    waiting_since: float  # seconds since 1970

    def settle(self, used: AccountedUsage | None, now: float) -> tuple[bool, AttemptUsage | None]:
        """Whether the usage is final, and the usage; None: unknown."""
        waited = now - self.waiting_since
        if used is None or used.uid != self.uid:
            return waited > _MAX_WAIT_SECONDS, None
        return used.is_complete or waited > _UNFINISHED_STEP_SECONDS, used.usage


class PendingUsageFolder:
    """Attempts whose usage is not known yet, on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, attempt_ids: Iterable[AttemptId]) -> None:
        """Renames their journal entries. Attempts without an entry are ignored."""
        for attempt_id in attempt_ids:
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._folder / f"{attempt_id}.slurm", self._path(attempt_id))

    def list_oldest(self, most: int) -> list[PendingUsage]:
        """At most `most` entries; entries of attempts that never reached Slurm are deleted."""
        pending = [entry for path in self._folder.glob(f"*{_SUFFIX}") if (entry := self._read(path))]
        return sorted(pending, key=lambda entry: entry.waiting_since)[:most]

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


def collect_settled_usage(folder: PendingUsageFolder, client: SlurmClient) -> dict[AttemptId, AttemptUsage | None]:
    """Final usage of the oldest pending attempts; None: it will never be known."""
    pending = folder.list_oldest(_MAX_PENDING_PER_CALL)
    try:
        usages = read_usage(client, [entry.slurm_job_id for entry in pending]) if pending else {}
    except EngineUnavailable:
        return {}
    except SlurmRefused:
        usages = {}  # there is no accounting
    settled = [(entry.attempt_id, *entry.settle(usages.get(entry.slurm_job_id), time.time())) for entry in pending]
    return {attempt_id: usage for attempt_id, is_settled, usage in settled if is_settled}


def read_usage(client: SlurmClient, numbers: Iterable[int]) -> dict[int, AccountedUsage]:
    """Usage of those jobs that the accounting has. Raises SlurmRefused if there is no accounting."""
    argv = ["sacct", "--parsable2", "--noheader", f"--format={','.join(SACCT_USAGE_FIELDS)}"]
    usages: dict[int, AccountedUsage] = {}
    for ids in format_job_id_lists(numbers):
        usages |= parse_sacct_usage(client.run_command([*argv, f"--jobs={ids}"]))
    return usages


def parse_sacct_usage(text: str) -> dict[int, AccountedUsage]:
    """By job, from lines of SACCT_USAGE_FIELDS: the line of a job, then those of its steps. Pure."""
    found: dict[int, AccountedUsage] = {}
    for line in text.splitlines():
        words = line.split("|")
        number = parse_job_id(words[0].partition(".")[0])
        if len(words) != len(SACCT_USAGE_FIELDS) or number is None:
            continue
        if "." not in words[0]:
            found.pop(number, None)
            if used := _usage_of_job(words):
                found[number] = used
        elif number in found:
            found[number] = _with_step(found[number], words)
    return found


def _usage_of_job(words: list[str]) -> AccountedUsage | None:
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
        _largest(usage.memory_mib, parse_size_mib(largest), _total_memory(mean, tasks)),
        usage.gpu_seconds,
        usage.out_of_memory or state == "OUT_OF_MEMORY",
    )
    return AccountedUsage(used.uid, usage, used.is_complete and state in SLURM_TERMINAL_STATES)


def _total_memory(mean: str, tasks: str) -> float | None:
    """Approximate memory of all tasks together; MaxRSS is only that of the largest task."""
    each, count = parse_size_mib(mean), parse_whole_number(tasks)
    return None if each is None or count is None else each * count


def _largest(*values: float | None) -> float | None:
    return max((value for value in values if value), default=None)


@dataclass(frozen=True, slots=True)
class LiveUsage:
    """Current usage of a job, the sum of all its tasks."""

    cpu_seconds: float = 0.0  # since it started
    memory_mib: float = 0.0
    gpu_percent: float | None = None  # sum of its GPUs: 200 for two fully used GPUs; None: unknown
    gpu_memory_mib: float | None = None


def read_live_usage(client: SlurmClient, numbers: Sequence[int]) -> dict[int, LiveUsage]:
    """Current usage of those jobs whose nodes report it. Ended jobs are skipped."""
    arrays = dict.fromkeys(number.array_job_id for number in numbers if isinstance(number, ArrayElementId))
    raw_ids = client.raw_job_ids(arrays)
    ids = [raw_ids.get(number) if isinstance(number, ArrayElementId) else int(number) for number in numbers]
    argv = ["sstat", "--allsteps", "--parsable2", "--noheader", f"--format={','.join(SSTAT_FIELDS)}"]
    usages: dict[int, LiveUsage] = {}
    for id_list in format_job_id_lists(id_ for id_ in ids if id_ is not None):
        usages |= parse_sstat_usage(client.run_command([*argv, f"--jobs={id_list}"]))
    return by_known_job_id(numbers, usages, raw_ids)


def parse_sstat_usage(text: str) -> dict[int, LiveUsage]:
    """By job, from lines of SSTAT_FIELDS, one per step. Array elements have Slurm's internal ids."""
    found: dict[int, LiveUsage] = {}
    for line in text.splitlines():
        step, _, used = line.partition("|")
        number = parse_job_id(step.partition(".")[0])
        if number is not None and (usage := _usage_of_step(parse_tres(used.rstrip("|")))):
            found[number] = _add(found.get(number, LiveUsage()), usage)
    return found


def by_known_job_id(
    numbers: Iterable[int], usages: Mapping[int, LiveUsage], raw_ids: Mapping[int, int]
) -> dict[int, LiveUsage]:
    """The usages by these ids, instead of Slurm's internal ids."""
    keys = {number: raw_ids.get(number) if isinstance(number, ArrayElementId) else number for number in numbers}
    return {number: usages[key] for number, key in keys.items() if key is not None and key in usages}


def _usage_of_step(used: Mapping[str, str]) -> LiveUsage | None:
    cpu, memory = parse_duration_seconds(used.get("cpu", "")), parse_size_mib(used.get("mem", ""))
    if cpu is None and memory is None:
        return None
    percent = parse_size_mib(used.get("gres/gpuutil", ""))  # a plain number, parsed as bytes
    gpu_memory = parse_size_mib(used.get("gres/gpumem", ""))
    return LiveUsage(cpu or 0.0, memory or 0.0, None if percent is None else percent * 2**20, gpu_memory)


def _add(left: LiveUsage, right: LiveUsage) -> LiveUsage:
    return LiveUsage(
        left.cpu_seconds + right.cpu_seconds,
        left.memory_mib + right.memory_mib,
        _sum(left.gpu_percent, right.gpu_percent),
        _sum(left.gpu_memory_mib, right.gpu_memory_mib),
    )


def _sum(left: float | None, right: float | None) -> float | None:
    return left if right is None else right if left is None else left + right


@dataclass(frozen=True, slots=True)
class RunningJob:
    """An attempt that runs in Slurm."""

    slurm_job_id: int
    device_count: int  # allocated GPUs


@dataclass(frozen=True, slots=True)
class _TimedSample:
    usage: LiveUsage
    sample: UsageSample
    at: float  # by the monotonic clock


ReadLiveUsage = Callable[[Sequence[int]], Mapping[int, LiveUsage]]


def find_running_jobs(tracked: TrackedJobs) -> dict[AttemptId, RunningJob]:
    """Jobs that ran at the last poll. Thread-safe."""
    running: dict[AttemptId, RunningJob] = {}
    for found in list(tracked.jobs.values()):
        if found.is_running and found.slurm_job_id is not None and found.can_receive_signals:
            job = found.attempt.job
            devices = job.resources.device_count * job.placement.tasks
            running[found.attempt.id] = RunningJob(found.slurm_job_id, devices)
    return running


class LiveUsageSampler:
    """Samples the usage of running jobs every `seconds`; 0: never."""

    def __init__(
        self,
        read: ReadLiveUsage,
        seconds: float,
        running: Callable[[], Mapping[AttemptId, RunningJob]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._seconds, self._running, self._clock = read, seconds, running, clock
        self._refreshes: RefreshedValue[None] = RefreshedValue("slurm_live_use", self.refresh, seconds)
        self._queried_at: dict[AttemptId, float] = {}  # last query of each
        self._samples: dict[AttemptId, _TimedSample] = {}

    def readings(self) -> dict[AttemptId, UsageSample]:
        """Recent samples of running jobs. Returns at once, and starts a refresh if the last is old."""
        if not self._seconds:
            return {}
        self._refreshes.refresh_if_stale()
        running, now, samples = self._running(), self._clock(), self._samples
        oldest = now - _MAX_AGE_INTERVALS * self._seconds * max(1, math.ceil(len(running) / MAX_JOBS_PER_QUERY))
        return {id_: samples[id_].sample for id_ in running if id_ in samples and samples[id_].at > oldest}

    def refresh(self) -> None:
        """Samples the jobs whose last query is the longest ago."""
        running = self._running()
        queried_at = {id_: at for id_, at in self._queried_at.items() if id_ in running}
        chosen = sorted(running, key=lambda id_: queried_at.get(id_, -math.inf))[:MAX_JOBS_PER_QUERY]
        usages = self._read([running[id_].slurm_job_id for id_ in chosen]) if chosen else {}
        now = self._clock()
        self._queried_at = queried_at | dict.fromkeys(chosen, now)
        samples = {id_: sample for id_, sample in self._samples.items() if id_ in running}
        for id_ in chosen:
            if (usage := usages.get(running[id_].slurm_job_id)) is not None:
                sample = _make_sample(usage, samples.get(id_), running[id_], now)
                samples[id_] = _TimedSample(usage, sample, now)
        self._samples = samples


def _make_sample(usage: LiveUsage, before: _TimedSample | None, running: RunningJob, now: float) -> UsageSample:
    """The average number of busy cpus since the previous sample; unknown for the first."""
    cpus = None
    if before is not None and now > before.at:
        cpus = max(0.0, usage.cpu_seconds - before.usage.cpu_seconds) / (now - before.at)
    devices: tuple[DeviceSample, ...] = ()
    if running.device_count and usage.gpu_percent is not None:
        each = min(100.0, usage.gpu_percent / running.device_count)
        memory = None if usage.gpu_memory_mib is None else usage.gpu_memory_mib / running.device_count
        devices = (DeviceSample(each, memory),) * running.device_count
    return UsageSample(cpus, usage.memory_mib, devices)


def read_node_loads(client: SlurmClient) -> dict[str, UsageSample]:
    """Usage by node."""
    argv = ["sinfo", "--noheader", "--all", "--Node", f"--Format={format_columns(SINFO_LOAD_FIELDS)}"]
    return parse_node_loads(client.run_command(argv))


def parse_node_loads(text: str) -> dict[str, UsageSample]:
    """From lines of SINFO_LOAD_FIELDS; "N/A" is unknown.

    Slurm reports the load average, and counts the page cache as used memory.
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
