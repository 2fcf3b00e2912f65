"""Attempts under way, and the word that one has ended: pure but for the clock."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf

from heliostat.engines.local.cgroups import Cgroup
from heliostat.engines.local.claim_files import WrapperClaim, WrapperExit
from heliostat.models import Attempt, AttemptEnded, AttemptId, EndCause

_KILLED = 137
_COARSE = timedelta(seconds=0.1)  # so much at most a file's time is behind the clock


@dataclass(slots=True)
class RunningAttempt:
    """An attempt under way, as the engine knows it."""

    attempt: Attempt
    claim: WrapperClaim
    group: Cgroup
    stop_signals: tuple[str, ...] = ()  # those it was asked to stop with
    is_in_container: bool = False  # in a container
    out_of_memory: bool = False
    has_exited: bool = False  # nothing of it is left to run; its devices are not yet given back
    started_monotonic: float = (
        -inf
    )  # by the monotonic clock; not known of an attempt that an earlier server started


def attempts_by_device(running: Iterable[RunningAttempt]) -> dict[str, list[AttemptId]]:
    """For each device the attempts that run there; those that are over are not among them."""
    found: dict[str, list[AttemptId]] = {}
    for one in running:
        for uuid in () if one.has_exited else one.attempt.devices:
            found.setdefault(uuid, []).append(one.attempt.id)
    return found


def make_attempt_ended(running: RunningAttempt, ending: WrapperExit) -> AttemptEnded:
    cause, detail = _why(ending, running)
    at, started_at = _end_time(ending), running.attempt.job.started_at
    if started_at and at < started_at < at + _COARSE:
        at = started_at
    return AttemptEnded(running.attempt.id, at, cause, ending.exit_code, detail)


def ran_out_of_memory(running: RunningAttempt, ending: WrapperExit) -> bool:
    """Whether the kernel killed something of it for want of memory.

    With cgroup v1 a container of root's is a group of its own, and takes the count along when it goes. What is
    left to be seen is that all memory was in use, and that it was killed.
    """
    if running.group.oom_kills() > 0:
        return True
    if not running.is_in_container or ending.exit_code != _KILLED or running.stop_signals or ending.timed_out:
        return False
    allowed_mib = running.attempt.job.resources.memory_mib * len(running.attempt.task_placements)
    return (running.group.memory_peak_mib() or 0) >= allowed_mib


def make_ended_before_boot(attempt: Attempt, ending: WrapperExit) -> AttemptEnded:
    """Nothing of it runs any more. It may have ended before, and left its exit status."""
    if ending.exit_code is None:
        return AttemptEnded(attempt.id, utc_now(), EndCause.LOST, detail="the machine restarted while it ran")
    cause = EndCause.TIMED_OUT if ending.timed_out else EndCause.EXITED
    return AttemptEnded(attempt.id, _end_time(ending), cause, ending.exit_code)


def utc_now() -> datetime:
    return datetime.now(UTC)


def describe_os_error(error: OSError) -> str:
    cause = error.strerror or str(error)
    return f"{error.filename}: {cause}" if error.filename else cause


def _why(ending: WrapperExit, running: RunningAttempt) -> tuple[EndCause, str | None]:
    if ending.timed_out:
        return EndCause.TIMED_OUT, None
    if running.stop_signals:
        return EndCause.STOPPED, None
    if ending.exit_code is None:
        return EndCause.LOST, "its supervising process was killed"
    if running.out_of_memory:
        limit = running.attempt.job.resources.memory_mib * len(running.attempt.task_placements)
        return EndCause.OUT_OF_MEMORY, f"it used more than its {limit} MiB of memory"
    return EndCause.EXITED, None


def _end_time(ending: WrapperExit) -> datetime:
    """Now, unless it ended while no server looked: the clock of the file system is a little coarse."""
    now = utc_now()
    return (
        ending.written_at
        if ending.written_at is not None and (now - ending.written_at).total_seconds() > 1
        else now
    )
