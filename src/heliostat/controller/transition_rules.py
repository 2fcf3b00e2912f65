"""From an observation to the job's next move: pure."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from heliostat.models import AttemptEnded, AttemptStarted, EndCause, Job, JobState
from heliostat.store.transitions import JobTransition

_FRESH: dict[str, Any] = {
    "node": None,
    "devices": (),
    "places": (),
    "started_at": None,
    "exit_code": None,
    "stop_requested": None,
}

# Stopping had no part in these. Exit code 0 is not among them: so leaves who has saved its work to go on later.
_ITS_OWN_ENDS = frozenset({EndCause.TIMED_OUT, EndCause.REFUSED})
_BACK = {
    "requeued": JobState.CANCELLED,
    "preempted": JobState.PREEMPTED,
    "failed": JobState.FAILED,
    "timed_out": JobState.TIMED_OUT,
}
_KINDS = {
    EndCause.LOST: "lost",
    EndCause.PREEMPTED: "lost",
    EndCause.TIMED_OUT: "timed_out",
}  # others: failed


def transitions_for_observation(
    job: Job, seen: AttemptStarted | AttemptEnded, may_try_again: bool
) -> list[JobTransition]:
    """What becomes of an active job, or of one that was handed over and may have started or ended meanwhile."""
    if job.state is JobState.PENDING:
        leaving = _leave_engines_queue(job, seen)
        job = replace(job, state=JobState.STARTING, **leaving.values)
        return [leaving, *transitions_for_observation(job, seen, may_try_again)]
    if isinstance(seen, AttemptStarted):
        return [start_transition(job, seen)]
    return [end_transition(job, seen, may_try_again)]


def start_transition(job: Job, seen: AttemptStarted) -> JobTransition:
    values = {"started_at": seen.at}
    return JobTransition(job.id, JobState.RUNNING, "running", seen.at, job.attempt, values)


def end_transition(job: Job, seen: AttemptEnded, may_try_again: bool) -> JobTransition:
    """Where the job goes when its attempt has ended like this."""
    if seen.cause is EndCause.REQUEUED and job.stop_requested not in ("cancel", "kill"):
        return _back(job, seen.at, "requeued", seen.detail, attempt=job.attempt + 1, dispatched=True)
    if asked := _move_as_asked(job, seen):
        return asked
    if seen.cause is EndCause.NOT_STARTED and may_try_again:
        return _back(job, seen.at, "not_started", seen.detail)
    if job.retries < job.max_retries and job.retry.should_retry(seen.cause.value, seen.exit_code):
        return _again(job, seen)
    return _over(job, _state_after(seen), seen, _reason(job, seen))


def attempt_state_after(move: JobTransition) -> JobState:
    """What history keeps of the attempt whose end has made the job move like this."""
    if move.to_state is not JobState.PENDING:
        return move.to_state
    return _BACK.get(move.event_kind, JobState.LOST)


def _leave_engines_queue(job: Job, seen: AttemptStarted | AttemptEnded) -> JobTransition:
    places = seen.places if isinstance(seen, AttemptStarted) else ()
    node = places[0].node if places else None
    values = {
        "node": node,
        "devices": tuple(uuid for place in places for uuid in place.devices),
        "places": places if len(places) > 1 else (),
        "reason": None,
        "waited_seconds": job.queue_wait_seconds(seen.at),
    }
    kind = "starting" if places else "given_back"
    return JobTransition(job.id, JobState.STARTING, kind, seen.at, job.attempt, values, node)


def _move_as_asked(job: Job, seen: AttemptEnded) -> JobTransition | None:
    """Where whoever has stopped it wants it; None: nobody has, or it ended for a reason of its own."""
    if job.stop_requested in ("cancel", "kill"):
        return _over(job, JobState.CANCELLED, seen, job.reason or "cancelled")
    if job.stop_requested == "requeue":
        return _back(job, seen.at, "requeued", job.reason)
    if job.stop_requested == "preempt" and seen.cause not in _ITS_OWN_ENDS:
        return _back(job, seen.at, "preempted", job.reason, preemptions=job.preemptions + 1)
    if job.stop_requested == "overtime" and not _has_completed(seen):
        return _over(job, JobState.TIMED_OUT, seen, job.reason or _overtime(job))
    return None


def _has_completed(seen: AttemptEnded) -> bool:
    return seen.cause is EndCause.EXITED and seen.exit_code == 0


def _overtime(job: Job) -> str:
    return f"it ran past its time limit of {job.time_limit_seconds} s, and others were waiting for what it held"


def _state_after(seen: AttemptEnded) -> JobState:
    if seen.cause is EndCause.TIMED_OUT:
        return JobState.TIMED_OUT
    if seen.cause in (EndCause.LOST, EndCause.PREEMPTED):
        return JobState.LOST
    if seen.cause is EndCause.STOPPED:
        return JobState.CANCELLED
    return JobState.COMPLETED if _has_completed(seen) else JobState.FAILED


def _reason(job: Job, seen: AttemptEnded) -> str | None:
    if seen.cause is EndCause.TIMED_OUT:
        return f"its time limit of {job.time_limit_seconds} s was over"
    if seen.cause is EndCause.OUT_OF_MEMORY:
        return f"out of memory: {seen.detail}; ask for more with --memory"
    if seen.cause is EndCause.EXITED and seen.detail:
        return seen.detail
    if seen.cause is EndCause.EXITED:
        return None if seen.exit_code == 0 else f"exit code {seen.exit_code}"
    return seen.detail


def _again(job: Job, seen: AttemptEnded) -> JobTransition:
    """One of its retries, after the delay it has asked for."""
    delay = job.retry.next_delay_seconds(job.retries)
    values: dict[str, Any] = {"retries": job.retries + 1}
    if delay:
        values["begin_at"] = seen.at + timedelta(seconds=delay)
    words = f"{_reason(job, seen) or 'its node was lost'} (retry {job.retries + 1} of {job.max_retries})"
    move = _back(job, seen.at, _KINDS.get(seen.cause, "failed"), words, **values)
    return replace(move, exit_code=seen.exit_code)


def _over(job: Job, state: JobState, seen: AttemptEnded, reason: str | None) -> JobTransition:
    values = {"ended_at": seen.at, "exit_code": seen.exit_code, "reason": reason, "stop_requested": None}
    return JobTransition(job.id, state, "ended", seen.at, job.attempt, values, reason)


def _back(job: Job, at: datetime, kind: str, detail: str | None, **values: Any) -> JobTransition:
    """To the queue, where it has waited as long as before it started: time in which it ran is no waiting."""
    fresh = {**_FRESH, "reason": detail, "waits_since": at, **values}
    return JobTransition(job.id, JobState.PENDING, kind, at, job.attempt, fresh, detail)
