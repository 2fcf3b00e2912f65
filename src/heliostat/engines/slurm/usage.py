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

from heliostat.engines.slurm.client import SlurmClient, SlurmRefused, columns, number_lists
from heliostat.engines.slurm.journal import entry_in
from heliostat.engines.slurm.parse import (
    OVER,
    ElementNumber,
    gpus_in,
    read_number,
    resources_in,
    size_in_mib,
    span_in_seconds,
    whole_number,
)
from heliostat.engines.slurm.timing import Refreshed
from heliostat.engines.slurm.tracked_job import TrackedJobs
from heliostat.errors import EngineUnavailable
from heliostat.models import AttemptId, AttemptUsage, DeviceReading, Reading

USAGE_FIELDS = ("JobID", "UID", "State", "ElapsedRaw", "TotalCPU", "MaxRSS", "AveRSS", "NTasks", "AllocTRES")
"""None that a user could fill with text of their own."""
_SUFFIX = ".owed"
_ASKED_AT_ONCE = 500  # jobs whose use is asked for
_LONGEST_WAIT_SECONDS = 2 * 86400.0  # after which what the accounting does not know is not asked for again
_HURRY_SECONDS = 600.0  # after which what is known of an unfinished step is taken as it is
LIVE_FIELDS = ("JobID", "TRESUsageInTot")
"""None that a user could fill with text of their own."""
MOST_AT_ONCE = 50
_LATE = 2.5  # times the time between two looks: what is older than that is not shown
LOAD_FIELDS = ("NodeList", "CPUs", "CPUsLoad", "Memory", "FreeMem")


@dataclass(frozen=True, slots=True)
class Used:
    """What the accounting says of a job."""

    uid: int
    usage: AttemptUsage
    is_complete: bool  # the job and all its steps are over there


@dataclass(frozen=True, slots=True)
class Owed:
    """An attempt whose use is to be found out."""

    attempt_id: AttemptId
    uid: int
    number: int
    since: float  # seconds since 1970

    def settled(self, used: Used | None, now: float) -> tuple[bool, AttemptUsage | None]:
        """Whether it need not be asked for again, and what is known then."""
        waited = now - self.since
        if used is None or used.uid != self.uid:
            return waited > _LONGEST_WAIT_SECONDS, None
        return used.is_complete or waited > _HURRY_SECONDS, used.usage


class OwedUsage:
    """The attempts whose use is to be found out, on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def owe(self, attempt_ids: Iterable[AttemptId]) -> None:
        """Their traces are no longer needed but for this. Those without one owe nothing."""
        for attempt_id in attempt_ids:
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._folder / f"{attempt_id}.slurm", self._path(attempt_id))

    def all(self, most: int) -> list[Owed]:
        """The oldest; what never came to Slurm is dropped."""
        found = [owed for path in self._folder.glob(f"*{_SUFFIX}") if (owed := self._read(path))]
        return sorted(found, key=lambda owed: owed.since)[:most]

    def remove(self, attempt_ids: Iterable[AttemptId]) -> None:
        for attempt_id in attempt_ids:
            self._path(attempt_id).unlink(missing_ok=True)

    def _read(self, path: Path) -> Owed | None:
        try:
            entry, since = entry_in(path.read_text(encoding="utf-8")), path.stat().st_ctime
        except FileNotFoundError:
            return None
        if entry.uid is None or entry.number is None:
            path.unlink(missing_ok=True)
            return None
        return Owed(path.name.removesuffix(_SUFFIX), entry.uid, entry.number, min(since, time.time()))

    def _path(self, attempt_id: AttemptId) -> Path:
        return self._folder / f"{attempt_id}{_SUFFIX}"


def settled_usage(owed_usage: OwedUsage, client: SlurmClient) -> dict[AttemptId, AttemptUsage | None]:
    """Of some of those whose use is to be found out, as far as that is settled; None: it never will be known."""
    owed = owed_usage.all(_ASKED_AT_ONCE)
    try:
        known = read_uses(client, [one.number for one in owed]) if owed else {}
    except EngineUnavailable:
        return {}
    except SlurmRefused:
        known = {}  # there is no accounting
    told = [(one.attempt_id, *one.settled(known.get(one.number), time.time())) for one in owed]
    return {attempt_id: usage for attempt_id, is_settled, usage in told if is_settled}


def read_uses(client: SlurmClient, numbers: Iterable[int]) -> dict[int, Used]:
    """What these have used, as far as the accounting knows; raises SlurmRefused where there is none."""
    argv = ["sacct", "--parsable2", "--noheader", f"--format={','.join(USAGE_FIELDS)}"]
    found: dict[int, Used] = {}
    for wanted in number_lists(numbers):
        found |= uses_of_sacct(client.ask([*argv, f"--jobs={wanted}"]))
    return found


def uses_of_sacct(text: str) -> dict[int, Used]:
    """By job, of lines of USAGE_FIELDS: the line of a job, then those of its steps. Pure."""
    found: dict[int, Used] = {}
    for line in text.splitlines():
        words = line.split("|")
        number = read_number(words[0].partition(".")[0])
        if len(words) != len(USAGE_FIELDS) or number is None:
            continue
        if "." not in words[0]:
            found.pop(number, None)
            if used := _of_job(words):
                found[number] = used
        elif number in found:
            found[number] = _with_step(found[number], words)
    return found


def _of_job(words: list[str]) -> Used | None:
    _, uid, state, elapsed, cpu, *_, resources = words
    seconds = whole_number(elapsed)
    if seconds is None or whole_number(uid) is None:
        return None
    gpus, _ = gpus_in(resources_in(resources))
    state = state.partition(" ")[0]
    usage = AttemptUsage(
        float(seconds),
        cpu_seconds=span_in_seconds(cpu) or None,
        gpu_seconds=float(gpus * seconds) if gpus else None,
        out_of_memory=state == "OUT_OF_MEMORY",
    )
    return Used(int(uid), usage, state in OVER)


def _with_step(used: Used, words: list[str]) -> Used:
    _, _, state, _, _, largest, mean, tasks, _ = words
    state, usage = state.partition(" ")[0], used.usage
    usage = AttemptUsage(
        usage.elapsed_seconds,
        usage.cpu_seconds,
        _largest(usage.memory_mib, size_in_mib(largest), _of_all(mean, tasks)),
        usage.gpu_seconds,
        usage.out_of_memory or state == "OUT_OF_MEMORY",
    )
    return Used(used.uid, usage, used.is_complete and state in OVER)


def _of_all(mean: str, tasks: str) -> float | None:
    """MaxRSS is that of the largest task; all of them together held about this."""
    each, count = size_in_mib(mean), whole_number(tasks)
    return None if each is None or count is None else each * count


def _largest(*values: float | None) -> float | None:
    return max((value for value in values if value), default=None)


@dataclass(frozen=True, slots=True)
class Live:
    """What a job uses, all its tasks together."""

    cpu_seconds: float = 0.0  # since it started
    memory_mib: float = 0.0
    gpu_percent: float | None = None  # of all its GPUs: 200 are two full ones; None: Slurm does not say
    gpu_memory_mib: float | None = None


def read_live(client: SlurmClient, numbers: Sequence[int]) -> dict[int, Live]:
    """What these use now, as far as their nodes say; jobs that are over are left out."""
    arrays = dict.fromkeys(number.array for number in numbers if isinstance(number, ElementNumber))
    inner = client.inner_numbers(arrays)
    wanted = [inner.get(one) if isinstance(one, ElementNumber) else int(one) for one in numbers]
    argv = ["sstat", "--allsteps", "--parsable2", "--noheader", f"--format={','.join(LIVE_FIELDS)}"]
    lives: dict[int, Live] = {}
    for words in number_lists(one for one in wanted if one is not None):
        lives |= lives_of_sstat(client.ask([*argv, f"--jobs={words}"]))
    return by_known_number(numbers, lives, inner)


def lives_of_sstat(text: str) -> dict[int, Live]:
    """By job, of lines of LIVE_FIELDS: one for each step. Jobs have the numbers Slurm has for them inside, also
    elements of arrays."""
    found: dict[int, Live] = {}
    for line in text.splitlines():
        step, _, used = line.partition("|")
        number = read_number(step.partition(".")[0])
        if number is not None and (live := _of_step(resources_in(used.rstrip("|")))):
            found[number] = _together(found.get(number, Live()), live)
    return found


def by_known_number(
    numbers: Iterable[int], lives: Mapping[int, Live], inner: Mapping[int, int]
) -> dict[int, Live]:
    """The same by the numbers we know them by."""
    named = {number: inner.get(number) if isinstance(number, ElementNumber) else number for number in numbers}
    return {number: lives[key] for number, key in named.items() if key is not None and key in lives}


def _of_step(used: Mapping[str, str]) -> Live | None:
    cpu, memory = span_in_seconds(used.get("cpu", "")), size_in_mib(used.get("mem", ""))
    if cpu is None and memory is None:
        return None
    percent = size_in_mib(used.get("gres/gpuutil", ""))  # a plain number, which is read as one of bytes
    gpu_memory = size_in_mib(used.get("gres/gpumem", ""))
    return Live(cpu or 0.0, memory or 0.0, None if percent is None else percent * 2**20, gpu_memory)


def _together(one: Live, other: Live) -> Live:
    return Live(
        one.cpu_seconds + other.cpu_seconds,
        one.memory_mib + other.memory_mib,
        _sum(one.gpu_percent, other.gpu_percent),
        _sum(one.gpu_memory_mib, other.gpu_memory_mib),
    )


def _sum(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else one + other


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt that runs in Slurm."""

    number: int
    devices: int  # GPUs it holds


@dataclass(frozen=True, slots=True)
class _Seen:
    live: Live
    reading: Reading
    at: float  # by the monotonic clock


ReadLive = Callable[[Sequence[int]], Mapping[int, Live]]


def running_jobs(tracked: TrackedJobs) -> dict[AttemptId, Running]:
    """Those that run, as of the newest look. Any thread may ask."""
    found: dict[AttemptId, Running] = {}
    for one in list(tracked.jobs.values()):
        if one.runs and one.number is not None and one.hears_signals:
            job = one.attempt.job
            found[one.attempt.id] = Running(one.number, job.resources.devices * job.placement.tasks)
    return found


class LiveUse:
    """`seconds` between two looks; 0: nobody looks."""

    def __init__(
        self,
        read: ReadLive,
        seconds: float,
        running: Callable[[], Mapping[AttemptId, Running]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._seconds, self._running, self._clock = read, seconds, running, clock
        self._looks: Refreshed[None] = Refreshed("slurm_live_use", self.look, seconds)
        self._asked: dict[AttemptId, float] = {}  # when each was last asked for
        self._seen: dict[AttemptId, _Seen] = {}

    def readings(self) -> dict[AttemptId, Reading]:
        """Of those that run now, as far as it is known. Returns at once, and begins a look if the last is old."""
        if not self._seconds:
            return {}
        self._looks.if_old()
        running, now, seen = self._running(), self._clock(), self._seen
        oldest = now - _LATE * self._seconds * max(1, math.ceil(len(running) / MOST_AT_ONCE))
        return {one: seen[one].reading for one in running if one in seen and seen[one].at > oldest}

    def look(self) -> None:
        """At those that have waited longest for it."""
        running = self._running()
        asked = {one: at for one, at in self._asked.items() if one in running}
        chosen = sorted(running, key=lambda one: asked.get(one, -math.inf))[:MOST_AT_ONCE]
        found = self._read([running[one].number for one in chosen]) if chosen else {}
        now = self._clock()
        self._asked = asked | dict.fromkeys(chosen, now)
        seen = {one: old for one, old in self._seen.items() if one in running}
        for one in chosen:
            if (live := found.get(running[one].number)) is not None:
                seen[one] = _Seen(live, _reading(live, seen.get(one), running[one], now), now)
        self._seen = seen


def _reading(live: Live, before: _Seen | None, running: Running, now: float) -> Reading:
    """Cpus are those kept busy since the look before: of the first nothing is known."""
    cpus = None
    if before is not None and now > before.at:
        cpus = max(0.0, live.cpu_seconds - before.live.cpu_seconds) / (now - before.at)
    devices: tuple[DeviceReading, ...] = ()
    if running.devices and live.gpu_percent is not None:
        each = min(100.0, live.gpu_percent / running.devices)
        memory = None if live.gpu_memory_mib is None else live.gpu_memory_mib / running.devices
        devices = (DeviceReading(each, memory),) * running.devices
    return Reading(cpus, live.memory_mib, devices)


def read_loads(client: SlurmClient) -> dict[str, Reading]:
    """How busy each node is."""
    argv = ["sinfo", "--noheader", "--all", "--Node", f"--Format={columns(LOAD_FIELDS)}"]
    return loads_of_sinfo(client.ask(argv))


def loads_of_sinfo(text: str) -> dict[str, Reading]:
    """Lines of LOAD_FIELDS; what a node does not say ("N/A") is not known.

    Slurm knows a load, the number of processes that want to run, and counts files in the page cache as in use.
    """
    found: dict[str, Reading] = {}
    for line in text.splitlines():
        words = line.rstrip("|").split("|")
        if len(words) == len(LOAD_FIELDS):
            name, cpus, load, memory, free = words[0], *map(_load_number, words[1:])
            in_use = None if memory is None or free is None else max(0.0, memory - free)
            found[name] = Reading(None if load is None or cpus is None else min(load, cpus), in_use)
    return found


def _load_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < 1e15 else None
