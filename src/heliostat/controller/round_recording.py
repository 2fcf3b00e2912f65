"""Writes what a round of the controller has seen and decided: in one transaction, each move guarded."""

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
from heliostat.store import jobs as stored
from heliostat.store import transitions
from heliostat.store.database import Transaction
from heliostat.store.shares_and_quotas import project_data_classes

TransitionsForObservation = Callable[[AttemptStarted | AttemptEnded], Sequence[transitions.JobTransition]]


@dataclass(slots=True)
class ReconcileRound:
    """What one round wants to record."""

    observations: list[Observation]
    plan: Plan
    now: datetime
    to_dispatch: Sequence[Job] = ()  # to an engine that queues by itself
    started: list[Attempt] = field(default_factory=list)
    ended: list[AttemptId] = field(default_factory=list)

    @property
    def has_changes(self) -> bool:
        return bool(self.observations or self.plan.starts or self.plan.stops or self.to_dispatch)


def record_round(tx: Transaction, this_round: ReconcileRound, moves_for: TransitionsForObservation) -> None:
    """While we hold the store: what was seen, then what is to start. Each is guarded by the state it finds."""
    this_round.started, this_round.ended = [], []
    _record_observations(tx, this_round, moves_for)
    starts = this_round.plan.starts
    wishes = [_move_to_start(start, this_round.now) for start in starts]
    done = {move.job_id for move in transitions.apply_transitions(tx, wishes)}
    jobs = stored.get_jobs(tx.conn, done) if done else {}
    this_round.started = [
        Attempt(job.attempt_id, job, start.node, start.devices, job.places, start.gpu_type)
        for start in starts
        if (job := jobs.get(start.job.id))
    ]
    this_round.started += _hand_over(tx, this_round)
    transitions.add_attempts(tx, this_round.started, this_round.now)
    for stop in this_round.plan.stops:
        _record_stop(tx, stop, this_round.now)


def _record_stop(tx: Transaction, stop: PlannedStop, now: datetime) -> None:
    """It is asked to make room; if it has ended, or is being stopped already, there is nothing to do."""
    job = stored.get_job(tx.conn, stop.job.id)
    if job is None or job.attempt != stop.job.attempt or job.state not in ACTIVE_STATES or job.stop_requested:
        return
    transitions.update_job(tx, job.id, {"stop_requested": stop.kind, "reason": stop.message})
    transitions.add_job_event(tx, job, f"{stop.kind}_requested", stop.message, now)


def _hand_over(tx: Transaction, this_round: ReconcileRound) -> list[Attempt]:
    """They go on waiting, in the engine's queue: those that still wait, and have not been handed over."""
    wishes = [job.id for job in this_round.to_dispatch]
    found = stored.get_jobs(tx.conn, wishes) if wishes else {}
    classes = project_data_classes(tx.conn) if wishes else {}
    handed: list[Attempt] = []
    for wanted in this_round.to_dispatch:
        job = found.get(wanted.id)
        if job is None or job.state is not JobState.PENDING or job.dispatched or job.attempt != wanted.attempt:
            continue
        values: dict[str, Any] = {"attempt": job.attempt + 1, "dispatched": True, "reason": None}
        transitions.update_job(tx, job.id, values)
        job = replace(job, **values)
        transitions.add_job_event(tx, job, "dispatched", None, this_round.now)
        handed.append(Attempt(job.attempt_id, job, "", data_class=classes.get(job.project, 0)))
    return handed


def _record_observations(
    tx: Transaction, this_round: ReconcileRound, moves_for: TransitionsForObservation
) -> None:
    starts = [seen for seen in this_round.observations if isinstance(seen, AttemptStarted)]
    ends = [seen for seen in this_round.observations if isinstance(seen, AttemptEnded)]
    wishes = [move for start in starts for move in moves_for(start)]
    done = transitions.apply_transitions(tx, wishes + [move for end in ends for move in moves_for(end)])
    _record_attempts(tx, done)
    _add_requeued(tx, [move.job_id for move in done if move.values.get("dispatched")], this_round.now)
    for seen in this_round.observations:
        if isinstance(seen, TimeLimitChanged):
            _record_limit(tx, seen)
        if isinstance(seen, AttemptStarted) and seen.gpu_type:
            job_id, _, number = seen.attempt_id.partition(".")
            transitions.update_attempt(tx, int(job_id), int(number), {"gpu_type": seen.gpu_type})
    this_round.ended = [end.attempt_id for end in ends]


def _record_attempts(tx: Transaction, done: Sequence[transitions.JobTransition]) -> None:
    """What became of them; one that started and ended is written once."""
    found: dict[tuple[JobId, int], dict[str, object]] = {}
    for move in done:
        found.setdefault((move.job_id, move.attempt or 0), {}).update(_attempt_values(move))
    transitions.update_attempts(tx, list(found.items()))


def _add_requeued(tx: Transaction, job_ids: Sequence[JobId], now: datetime) -> None:
    """The engine's own queue has them already, as attempts that are not recorded yet."""
    jobs = stored.get_jobs(tx.conn, job_ids) if job_ids else {}
    transitions.add_attempts(tx, [Attempt(job.attempt_id, job, "") for job in jobs.values()], now)


def _record_limit(tx: Transaction, seen: TimeLimitChanged) -> None:
    """It was changed where the job is; of an attempt that is no longer the newest it does not matter."""
    job = stored.get_job(tx.conn, job_id_of_attempt(seen.attempt_id))
    limit = seen.time_limit_seconds
    if job is None or job.is_terminal or job.attempt_id != seen.attempt_id or job.time_limit_seconds == limit:
        return
    transitions.update_job(tx, job.id, {"time_limit_seconds": limit})
    words = "it has no time limit any more" if limit is None else f"its time limit is now {limit} s"
    transitions.add_job_event(tx, job, "limit_changed", words, seen.at)


def _move_to_start(start: PlannedStart, now: datetime) -> transitions.JobTransition:
    values = {
        "attempt": start.job.attempt + 1,
        "node": start.node,
        "devices": start.devices,
        "places": start.places if len(start.places) > 1 else (),
        "reason": None,
        "waited_seconds": start.job.queue_wait_seconds(now),
    }
    return transitions.JobTransition(
        start.job.id, JobState.STARTING, "starting", now, start.job.attempt, values, start.node
    )


def _attempt_values(move: transitions.JobTransition) -> dict[str, object]:
    if move.to_state is JobState.STARTING:
        values = move.values
        return {"node": values["node"] or "", "devices": values["devices"], "places": values["places"]}
    if move.to_state is JobState.RUNNING:
        return {"state": move.to_state, "started_at": move.at}
    exit_code = move.exit_code if move.exit_code is not None else move.values.get("exit_code")
    return {"state": attempt_state_after(move), "ended_at": move.at, "exit_code": exit_code, "reason": move.detail}
