"""Attempts under way, and the word that one has ended: pure but for the clock."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf

from heliostat.engines.local.cgroups import Group
from heliostat.engines.local.trace import Claim, Ending
from heliostat.models import Attempt, AttemptId, Cause, Ended

_KILLED = 137
_COARSE = timedelta(seconds=0.1)  # so much at most a file's time is behind the clock


@dataclass(slots=True)
class Running:
    """An attempt under way, as the engine knows it."""

    attempt: Attempt
    claim: Claim
    group: Group
    signals: tuple[str, ...] = ()  # those it was asked to stop with
    is_contained: bool = False  # in a container
    out_of_memory: bool = False
    is_over: bool = False  # nothing of it is left to run; its devices are not yet given back
    began_at: float = -inf  # by the monotonic clock; not known of an attempt that an earlier server started


def holders(running: Iterable[Running]) -> dict[str, list[AttemptId]]:
    """For each device the attempts that run there; those that are over are not among them."""
    found: dict[str, list[AttemptId]] = {}
    for one in running:
        for uuid in () if one.is_over else one.attempt.devices:
            found.setdefault(uuid, []).append(one.attempt.id)
    return found


def ended(running: Running, ending: Ending) -> Ended:
    cause, detail = _why(ending, running)
    at, started_at = _end_time(ending), running.attempt.job.started_at
    if started_at and at < started_at < at + _COARSE:
        at = started_at
    return Ended(running.attempt.id, at, cause, ending.exit_code, detail)


def ran_out_of_memory(running: Running, ending: Ending) -> bool:
    """Whether the kernel killed something of it for want of memory.

    With cgroup v1 a container of root's is a group of its own, and takes the count along when it goes. What is
    left to be seen is that all memory was in use, and that it was killed.
    """
    if running.group.oom_kills() > 0:
        return True
    if not running.is_contained or ending.exit_code != _KILLED or running.signals or ending.timed_out:
        return False
    allowed_mib = running.attempt.job.resources.memory_mib * len(running.attempt.task_places)
    return (running.group.memory_peak_mib() or 0) >= allowed_mib


def ended_before_boot(attempt: Attempt, ending: Ending) -> Ended:
    """Nothing of it runs any more. It may have ended before, and left its exit status."""
    if ending.exit_code is None:
        return Ended(attempt.id, utc_now(), Cause.LOST, detail="the machine restarted while it ran")
    cause = Cause.TIMED_OUT if ending.timed_out else Cause.EXITED
    return Ended(attempt.id, _end_time(ending), cause, ending.exit_code)


def utc_now() -> datetime:
    return datetime.now(UTC)


def in_words(error: OSError) -> str:
    cause = error.strerror or str(error)
    return f"{error.filename}: {cause}" if error.filename else cause


def _why(ending: Ending, running: Running) -> tuple[Cause, str | None]:
    if ending.timed_out:
        return Cause.TIMED_OUT, None
    if running.signals:
        return Cause.STOPPED, None
    if ending.exit_code is None:
        return Cause.LOST, "its supervising process was killed"
    if running.out_of_memory:
        limit = running.attempt.job.resources.memory_mib * len(running.attempt.task_places)
        return Cause.OUT_OF_MEMORY, f"it used more than its {limit} MiB of memory"
    return Cause.EXITED, None


def _end_time(ending: Ending) -> datetime:
    """Now, unless it ended while no server looked: the clock of the file system is a little coarse."""
    now = utc_now()
    return ending.at if ending.at is not None and (now - ending.at).total_seconds() > 1 else now
