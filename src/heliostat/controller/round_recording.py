"""Records the observations and decisions of a controller round in one transaction, each guarded by the state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from heliostat.controller.transition_rules import attempt_state_after
from heliostat.models import (
    ACTIVE_STATES,
    Attempt,
    AttemptEnded,
    AttemptId,
    AttemptStarted,
    Job,
    JobId,
    JobState,
    Observation,
    TimeLimitChanged,
    job_id_of_attempt,
)
from heliostat.scheduling.snapshot import Plan, PlannedStart, PlannedStop
from heliostat.store import job_writes
from heliostat.store import jobs as stored
from heliostat.store.database import Transaction
from heliostat.store.projects_and_quotas import project_data_classes

TransitionsForObservation = Callable[[AttemptStarted | AttemptEnded], Sequence[job_writes.JobTransition]]


@dataclass(slots=True)
class ReconcileRound:
    """Input and result of one round."""

    observations: list[Observation]
    plan: Plan
    now: datetime
    to_dispatch: Sequence[Job] = ()  # to an engine with its own queue
    started: list[Attempt] = field(default_factory=list)
    ended: list[AttemptId] = field(default_factory=list)

    @property
    def has_changes(self) -> bool:
        plan = self.plan
        changes_jobs = plan.starts or plan.stops or plan.new_bookings or plan.withdrawn_bookings
        return bool(self.observations or changes_jobs or self.to_dispatch)


def record_round(tx: Transaction, this_round: ReconcileRound, transitions_for: TransitionsForObservation) -> None:
    """First the observations, then the starts and stops. Each is applied only if the current state allows it."""
    this_round.started, this_round.ended = [], []
    _record_observations(tx, this_round, transitions_for)
    starts = this_round.plan.starts
    requested = [_start_transition(start, this_round.now) for start in starts]
    done = {transition.job_id for transition in job_writes.apply_transitions(tx, requested)}
    jobs = stored.get_jobs(tx.conn, done) if done else {}
    this_round.started = [
        Attempt(job.attempt_id, job, start.node, start.devices, job.places, start.gpu_type)
        for start in starts
        if (job := jobs.get(start.job.id))
    ]
    this_round.started += _dispatch(tx, this_round)
    job_writes.add_attempts(tx, this_round.started, this_round.now)
    for stop in this_round.plan.stops:
        _record_stop(tx, stop, this_round.now)
    _record_bookings(tx, this_round.plan, this_round.now)


def _record_stop(tx: Transaction, stop: PlannedStop, now: datetime) -> None:
    """Request a stop, unless the job has ended or is already being stopped."""
    job = stored.get_job(tx.conn, stop.job.id)
    if job is None or job.attempt != stop.job.attempt or job.state not in ACTIVE_STATES or job.stop_requested:
        return
    job_writes.update_job(tx, job.id, {"stop_requested": stop.kind, "reason": stop.message})
    job_writes.add_job_event(tx, job, f"{stop.kind}_requested", stop.message, now)


def _record_bookings(tx: Transaction, plan: Plan, now: datetime) -> None:
    """Keep the new bookings of jobs that still wait, and forget those that the plan withdraws."""
    changes = {**dict.fromkeys(plan.withdrawn_bookings), **dict.fromkeys(plan.new_bookings, now)}
    jobs = stored.get_jobs(tx.conn, list(changes)) if changes else {}
    for job in jobs.values():
        booked_at = changes[job.id]
        if job.state is JobState.PENDING:
            job_writes.update_job(tx, job.id, {"booked_at": booked_at})
            job_writes.add_job_event(tx, job, "booked" if booked_at else "booking_withdrawn", None, now)


def _dispatch(tx: Transaction, this_round: ReconcileRound) -> list[Attempt]:
    """Jobs that are still pending and not dispatched move to the engine's own queue."""
    job_ids = [job.id for job in this_round.to_dispatch]
    jobs = stored.get_jobs(tx.conn, job_ids) if job_ids else {}
    classes = project_data_classes(tx.conn) if job_ids else {}
    dispatched: list[Attempt] = []
    for planned in this_round.to_dispatch:
        job = jobs.get(planned.id)
        if job is None or job.state is not JobState.PENDING or job.dispatched or job.attempt != planned.attempt:
            continue
        values: dict[str, Any] = {"attempt": job.attempt + 1, "dispatched": True, "reason": None}
        job_writes.update_job(tx, job.id, values)
        job = replace(job, **values)
        job_writes.add_job_event(tx, job, "dispatched", None, this_round.now)
        dispatched.append(Attempt(job.attempt_id, job, "", data_class=classes.get(job.project, 0)))
    return dispatched


def _record_observations(
    tx: Transaction, this_round: ReconcileRound, transitions_for: TransitionsForObservation
) -> None:
    starts = [seen for seen in this_round.observations if isinstance(seen, AttemptStarted)]
    ends = [seen for seen in this_round.observations if isinstance(seen, AttemptEnded)]
    requested = [transition for start in starts for transition in transitions_for(start)]
    requested += [transition for end in ends for transition in transitions_for(end)]
    done = job_writes.apply_transitions(tx, requested)
    _record_attempts(tx, done)
    _add_requeued(
        tx, [transition.job_id for transition in done if transition.values.get("dispatched")], this_round.now
    )
    for seen in this_round.observations:
        if isinstance(seen, TimeLimitChanged):
            _record_limit(tx, seen)
        if isinstance(seen, AttemptStarted) and seen.gpu_type:
            job_id, _, number = seen.attempt_id.partition(".")
            job_writes.update_attempt(tx, int(job_id), int(number), {"gpu_type": seen.gpu_type})
    this_round.ended = [end.attempt_id for end in ends]


def _record_attempts(tx: Transaction, done: Sequence[job_writes.JobTransition]) -> None:
    """An attempt that started and ended is written once."""
    changed: dict[tuple[JobId, int], dict[str, object]] = {}
    for transition in done:
        changed.setdefault((transition.job_id, transition.attempt or 0), {}).update(_attempt_values(transition))
    job_writes.update_attempts(tx, list(changed.items()))


def _add_requeued(tx: Transaction, job_ids: Sequence[JobId], now: datetime) -> None:
    """Add the attempts that the engine's own queue has created by requeueing."""
    jobs = stored.get_jobs(tx.conn, job_ids) if job_ids else {}
    job_writes.add_attempts(tx, [Attempt(job.attempt_id, job, "") for job in jobs.values()], now)


def _record_limit(tx: Transaction, seen: TimeLimitChanged) -> None:
    """A time limit changed in the engine. Ignored if the attempt is not the newest."""
    job = stored.get_job(tx.conn, job_id_of_attempt(seen.attempt_id))
    limit = seen.time_limit_seconds
    if job is None or job.is_terminal or job.attempt_id != seen.attempt_id or job.time_limit_seconds == limit:
        return
    job_writes.update_job(tx, job.id, {"time_limit_seconds": limit})
    detail = "time limit removed" if limit is None else f"time limit changed to {limit} s"
    job_writes.add_job_event(tx, job, "limit_changed", detail, seen.at)


def _start_transition(start: PlannedStart, now: datetime) -> job_writes.JobTransition:
    values = {
        "attempt": start.job.attempt + 1,
        "node": start.node,
        "devices": start.devices,
        "places": start.places if len(start.places) > 1 else (),
        "reason": None,
        "waited_seconds": start.job.queue_wait_seconds(now),
    }
    return job_writes.JobTransition(
        start.job.id, JobState.STARTING, "starting", now, start.job.attempt, values, start.node
    )


def _attempt_values(transition: job_writes.JobTransition) -> dict[str, object]:
    if transition.to_state is JobState.STARTING:
        values = transition.values
        return {"node": values["node"] or "", "devices": values["devices"], "places": values["places"]}
    if transition.to_state is JobState.RUNNING:
        return {"state": transition.to_state, "started_at": transition.at}
    exit_code = transition.exit_code if transition.exit_code is not None else transition.values.get("exit_code")
    return {
        "state": attempt_state_after(transition),
        "ended_at": transition.at,
        "exit_code": exit_code,
        "reason": transition.detail,
    }
