"""Exit status: the cause and time of the end of an attempt, from its exit code, signals and memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf

from heliostat.engines.local.cgroups import Cgroup
from heliostat.engines.local.claim_files import WrapperClaim, WrapperExit
from heliostat.models import Attempt, AttemptEnded, AttemptId, EndCause

_KILLED = 137
_MAX_FILE_TIME_LAG = timedelta(seconds=0.1)  # of a modification time behind the clock


@dataclass(slots=True)
class RunningAttempt:
    """A running attempt, with the state that the engine keeps of it."""

    attempt: Attempt
    claim: WrapperClaim
    group: Cgroup
    stop_signals: tuple[str, ...] = ()  # sent to stop it
    is_in_container: bool = False
    out_of_memory: bool = False
    has_exited: bool = False  # all its processes have ended; its devices are not released yet
    started_monotonic: float = -inf  # on the monotonic clock; -inf: started by an earlier server process


def attempts_by_device(running: Iterable[RunningAttempt]) -> dict[str, list[AttemptId]]:
    """For each device, the attempts that run there, without those that have ended."""
    attempts: dict[str, list[AttemptId]] = {}
    for item in running:
        for uuid in () if item.has_exited else item.attempt.devices:
            attempts.setdefault(uuid, []).append(item.attempt.id)
    return attempts


def make_attempt_ended(running: RunningAttempt, wrapper_exit: WrapperExit) -> AttemptEnded:
    cause, detail = _end_cause(wrapper_exit, running)
    at, started_at = _end_time(wrapper_exit), running.attempt.job.started_at
    if started_at and at < started_at < at + _MAX_FILE_TIME_LAG:
        at = started_at
    return AttemptEnded(running.attempt.id, at, cause, wrapper_exit.exit_code, detail)


def ran_out_of_memory(running: RunningAttempt, wrapper_exit: WrapperExit) -> bool:
    """Whether the kernel killed one of its processes because memory ran out.

    With cgroup v1, a container of root has its own cgroup, and the count is lost when that is removed. Then it is
    inferred: the peak has reached the limit, and the container was killed.
    """
    if running.group.oom_kills() > 0:
        return True
    if (
        not running.is_in_container
        or wrapper_exit.exit_code != _KILLED
        or running.stop_signals
        or wrapper_exit.timed_out
    ):
        return False
    allowed_mib = running.attempt.job.resources.memory_mib * len(running.attempt.task_placements)
    return (running.group.memory_peak_mib() or 0) >= allowed_mib


def make_ended_before_boot(attempt: Attempt, wrapper_exit: WrapperExit) -> AttemptEnded:
    """The end of an attempt from before the last boot, with its exit status if it had ended by then."""
    if wrapper_exit.exit_code is None:
        return AttemptEnded(attempt.id, utc_now(), EndCause.LOST, detail="the node restarted while it ran")
    cause = EndCause.TIMED_OUT if wrapper_exit.timed_out else EndCause.EXITED
    return AttemptEnded(attempt.id, _end_time(wrapper_exit), cause, wrapper_exit.exit_code)


def utc_now() -> datetime:
    return datetime.now(UTC)


def describe_os_error(error: OSError) -> str:
    cause = error.strerror or str(error)
    return f"{error.filename}: {cause}" if error.filename else cause


def _end_cause(wrapper_exit: WrapperExit, running: RunningAttempt) -> tuple[EndCause, str | None]:
    if wrapper_exit.timed_out:
        return EndCause.TIMED_OUT, None
    if running.stop_signals:
        return EndCause.STOPPED, None
    if wrapper_exit.exit_code is None:
        return EndCause.LOST, "its wrapper process was killed"
    if running.out_of_memory:
        limit = running.attempt.job.resources.memory_mib * len(running.attempt.task_placements)
        return EndCause.OUT_OF_MEMORY, f"it used more than its {limit} MiB of memory"
    return EndCause.EXITED, None


def _end_time(wrapper_exit: WrapperExit) -> datetime:
    """Now, or the time of the file if it ended while no server was running. File times are less precise."""
    now = utc_now()
    return (
        wrapper_exit.written_at
        if wrapper_exit.written_at is not None and (now - wrapper_exit.written_at).total_seconds() > 1
        else now
    )
