"""State transitions of a job after an observation of its engine. Pure."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from heliostat.models import AttemptEnded, AttemptStarted, EndCause, Job, JobState
from heliostat.store.job_writes import JobTransition

OUT_OF_MEMORY = "out of memory"
"""Begin of the reason of a job that ended so."""

_RESET_FIELDS: dict[str, Any] = {
    "node": None,
    "devices": (),
    "places": (),
    "started_at": None,
    "exit_code": None,
    "stop_requested": None,
}

# Causes unrelated to the stop request. Exit code 0 is not one: a preempted job that saved its work exits with 0.
_OWN_CAUSES = frozenset({EndCause.TIMED_OUT, EndCause.REFUSED})
OUT_OF_MEMORY = "out of memory"  # how the reason of a job begins that was killed for that
_STATE_BY_EVENT_KIND = {
    "requeued": JobState.CANCELLED,
    "preempted": JobState.PREEMPTED,
    "device_failed": JobState.FAILED,
    "failed": JobState.FAILED,
    "timed_out": JobState.TIMED_OUT,
}
_EVENT_KIND_BY_CAUSE = {
    EndCause.LOST: "lost",
    EndCause.PREEMPTED: "lost",
    EndCause.TIMED_OUT: "timed_out",
}  # others: failed


def transitions_for_observation(
    job: Job, observation: AttemptStarted | AttemptEnded, may_retry: bool
) -> list[JobTransition]:
    """For an active job, or a dispatched one that may have started or ended in the meantime."""
    if job.state is JobState.PENDING:
        leaving = _leave_engine_queue(job, observation)
        job = replace(job, state=JobState.STARTING, **leaving.values)
        return [leaving, *transitions_for_observation(job, observation, may_retry)]
    if isinstance(observation, AttemptStarted):
        return [start_transition(job, observation)]
    return [end_transition(job, observation, may_retry)]


def start_transition(job: Job, observation: AttemptStarted) -> JobTransition:
    values = {"started_at": observation.at}
    return JobTransition(job.id, JobState.RUNNING, "running", observation.at, job.attempt, values)


def end_transition(job: Job, observation: AttemptEnded, may_retry: bool) -> JobTransition:
    """The transition after the end of the job's attempt."""
    if observation.cause is EndCause.REQUEUED and job.stop_requested not in ("cancel", "kill"):
        return _requeue(
            job, observation.at, "requeued", observation.detail, attempt=job.attempt + 1, dispatched=True
        )
    if requested := _requested_transition(job, observation):
        return requested
    if observation.cause in (EndCause.NOT_STARTED, EndCause.DEVICE_FAILED) and may_retry:
        requeued = _requeue(job, observation.at, observation.cause.value, observation.detail)
        return replace(requeued, exit_code=observation.exit_code)
    if job.retries < job.max_retries and job.retry.should_retry(observation.cause.value, observation.exit_code):
        return _retry(job, observation)
    return _finish(job, _state_after(observation), observation, _reason(job, observation))


def attempt_state_after(transition: JobTransition) -> JobState:
    """The final state of the attempt whose end caused this transition."""
    if transition.to_state is not JobState.PENDING:
        return transition.to_state
    return _STATE_BY_EVENT_KIND.get(transition.event_kind, JobState.LOST)


def _leave_engine_queue(job: Job, observation: AttemptStarted | AttemptEnded) -> JobTransition:
    places = observation.places if isinstance(observation, AttemptStarted) else ()
    node = places[0].node if places else None
    values = {
        "node": node,
        "devices": tuple(uuid for place in places for uuid in place.devices),
        "places": places if len(places) > 1 else (),
        "reason": None,
        "waited_seconds": job.queue_wait_seconds(observation.at),
    }
    kind = "starting" if places else "given_back"
    return JobTransition(job.id, JobState.STARTING, kind, observation.at, job.attempt, values, node)


def _requested_transition(job: Job, observation: AttemptEnded) -> JobTransition | None:
    """The transition that the stop request demands; None: there is no request, or the cause is unrelated to it."""
    if job.stop_requested in ("cancel", "kill"):
        return _finish(job, JobState.CANCELLED, observation, job.reason or "cancelled")
    if job.stop_requested == "requeue":
        return _requeue(job, observation.at, "requeued", job.reason)
    if job.stop_requested == "preempt" and observation.cause not in _OWN_CAUSES:
        return _requeue(job, observation.at, "preempted", job.reason, preemptions=job.preemptions + 1)
    if job.stop_requested == "overtime" and not _has_completed(observation):
        return _finish(job, JobState.TIMED_OUT, observation, job.reason or _overtime_reason(job))
    return None


def _has_completed(observation: AttemptEnded) -> bool:
    return observation.cause is EndCause.EXITED and observation.exit_code == 0


def _overtime_reason(job: Job) -> str:
    return f"it exceeded its time limit of {job.time_limit_seconds} s, and another job needed its resources"


def _state_after(observation: AttemptEnded) -> JobState:
    if observation.cause is EndCause.TIMED_OUT:
        return JobState.TIMED_OUT
    if observation.cause in (EndCause.LOST, EndCause.PREEMPTED):
        return JobState.LOST
    if observation.cause is EndCause.STOPPED:
        return JobState.CANCELLED
    return JobState.COMPLETED if _has_completed(observation) else JobState.FAILED


def _reason(job: Job, observation: AttemptEnded) -> str | None:
    if observation.cause is EndCause.TIMED_OUT:
        return f"it reached its time limit of {job.time_limit_seconds} s"
    if observation.cause is EndCause.OUT_OF_MEMORY:
        detail = observation.detail or "it used more memory than it requested"
        return f"{OUT_OF_MEMORY}: {detail}; request more with --memory"
    if observation.cause is EndCause.EXITED and observation.detail:
        return observation.detail
    if observation.cause is EndCause.EXITED:
        return None if observation.exit_code == 0 else f"exit code {observation.exit_code}"
    return observation.detail


def _retry(job: Job, observation: AttemptEnded) -> JobTransition:
    """Use one of its retries, after the requested delay."""
    delay = job.retry.next_delay_seconds(job.retries)
    values: dict[str, Any] = {"retries": job.retries + 1}
    if delay:
        values["begin_at"] = observation.at + timedelta(seconds=delay)
    detail = f"{_reason(job, observation) or 'its node was lost'} (retry {job.retries + 1} of {job.max_retries})"
    transition = _requeue(
        job, observation.at, _EVENT_KIND_BY_CAUSE.get(observation.cause, "failed"), detail, **values
    )
    return replace(transition, exit_code=observation.exit_code)


def _finish(job: Job, state: JobState, observation: AttemptEnded, reason: str | None) -> JobTransition:
    values = {
        "ended_at": observation.at,
        "exit_code": observation.exit_code,
        "reason": reason,
        "stop_requested": None,
    }
    return JobTransition(job.id, state, "ended", observation.at, job.attempt, values, reason)


def _requeue(job: Job, at: datetime, kind: str, detail: str | None, **values: Any) -> JobTransition:
    """Back to the queue. Its waiting time continues from before the start: run time does not count as waiting."""
    fields = {**_RESET_FIELDS, "reason": detail, "waits_since": at, **values}
    return JobTransition(job.id, JobState.PENDING, kind, at, job.attempt, fields, detail)
