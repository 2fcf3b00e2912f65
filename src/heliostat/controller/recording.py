"""Writes what a round of the controller has seen and decided: in one transaction, each move guarded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from heliostat.controller.outcome import attempt_state_after
from heliostat.models import (
    ACTIVE,
    Attempt,
    AttemptId,
    Ended,
    Job,
    JobId,
    JobState,
    Observation,
    Retimed,
    Started,
    job_of_attempt,
)
from heliostat.scheduling.snapshot import Plan, Start, Stop
from heliostat.store import jobs as stored
from heliostat.store import moves
from heliostat.store.accounts import data_classes
from heliostat.store.database import Transaction

MovesFor = Callable[[Started | Ended], Sequence[moves.Move]]


@dataclass(slots=True)
class Round:
    """What one round wants to record."""

    observations: list[Observation]
    plan: Plan
    now: datetime
    to_hand_over: Sequence[Job] = ()  # to an engine that queues by itself
    started: list[Attempt] = field(default_factory=list)
    ended: list[AttemptId] = field(default_factory=list)

    @property
    def has_news(self) -> bool:
        return bool(self.observations or self.plan.starts or self.plan.stops or self.to_hand_over)


def record(tx: Transaction, this_round: Round, moves_for: MovesFor) -> None:
    """While we hold the store: what was seen, then what is to start. Each is guarded by the state it finds."""
    this_round.started, this_round.ended = [], []
    _record_observations(tx, this_round, moves_for)
    starts = this_round.plan.starts
    wishes = [_move_to_start(start, this_round.now) for start in starts]
    done = {move.job_id for move in moves.move_jobs(tx, wishes)}
    jobs = stored.get_jobs(tx.conn, done) if done else {}
    this_round.started = [
        Attempt(job.attempt_id, job, start.node, start.devices, job.places, start.gpu_type)
        for start in starts
        if (job := jobs.get(start.job.id))
    ]
    this_round.started += _hand_over(tx, this_round)
    moves.add_attempts(tx, this_round.started, this_round.now)
    for stop in this_round.plan.stops:
        _record_stop(tx, stop, this_round.now)


def _record_stop(tx: Transaction, stop: Stop, now: datetime) -> None:
    """It is asked to make room; if it has ended, or is being stopped already, there is nothing to do."""
    job = stored.get_job(tx.conn, stop.job.id)
    if job is None or job.attempt != stop.job.attempt or job.state not in ACTIVE or job.stop_requested:
        return
    moves.set_job(tx, job.id, {"stop_requested": stop.why, "reason": stop.words})
    moves.note_job(tx, job, f"{stop.why}_requested", stop.words, now)


def _hand_over(tx: Transaction, this_round: Round) -> list[Attempt]:
    """They go on waiting, in the engine's queue: those that still wait, and have not been handed over."""
    wishes = [job.id for job in this_round.to_hand_over]
    found = stored.get_jobs(tx.conn, wishes) if wishes else {}
    classes = data_classes(tx.conn) if wishes else {}
    handed: list[Attempt] = []
    for wanted in this_round.to_hand_over:
        job = found.get(wanted.id)
        if job is None or job.state is not JobState.PENDING or job.handed_over or job.attempt != wanted.attempt:
            continue
        values: dict[str, Any] = {"attempt": job.attempt + 1, "handed_over": True, "reason": None}
        moves.set_job(tx, job.id, values)
        job = replace(job, **values)
        moves.note_job(tx, job, "handed_over", None, this_round.now)
        handed.append(Attempt(job.attempt_id, job, "", data_class=classes.get(job.project, 0)))
    return handed


def _record_observations(tx: Transaction, this_round: Round, moves_for: MovesFor) -> None:
    starts = [seen for seen in this_round.observations if isinstance(seen, Started)]
    ends = [seen for seen in this_round.observations if isinstance(seen, Ended)]
    wishes = [move for start in starts for move in moves_for(start)]
    done = moves.move_jobs(tx, wishes + [move for end in ends for move in moves_for(end)])
    _record_attempts(tx, done)
    _add_requeued(tx, [move.job_id for move in done if move.values.get("handed_over")], this_round.now)
    for seen in this_round.observations:
        if isinstance(seen, Retimed):
            _record_limit(tx, seen)
        if isinstance(seen, Started) and seen.gpu_type:
            job_id, _, number = seen.attempt_id.partition(".")
            moves.set_attempt(tx, int(job_id), int(number), {"gpu_type": seen.gpu_type})
    this_round.ended = [end.attempt_id for end in ends]


def _record_attempts(tx: Transaction, done: Sequence[moves.Move]) -> None:
    """What became of them; one that started and ended is written once."""
    found: dict[tuple[JobId, int], dict[str, object]] = {}
    for move in done:
        found.setdefault((move.job_id, move.attempt or 0), {}).update(_attempt_values(move))
    moves.set_attempts(tx, list(found.items()))


def _add_requeued(tx: Transaction, job_ids: Sequence[JobId], now: datetime) -> None:
    """The engine's own queue has them already, as attempts that are not recorded yet."""
    jobs = stored.get_jobs(tx.conn, job_ids) if job_ids else {}
    moves.add_attempts(tx, [Attempt(job.attempt_id, job, "") for job in jobs.values()], now)


def _record_limit(tx: Transaction, seen: Retimed) -> None:
    """It was changed where the job is; of an attempt that is no longer the newest it does not matter."""
    job = stored.get_job(tx.conn, job_of_attempt(seen.attempt_id))
    limit = seen.time_limit_seconds
    if job is None or job.is_over or job.attempt_id != seen.attempt_id or job.time_limit_seconds == limit:
        return
    moves.set_job(tx, job.id, {"time_limit_seconds": limit})
    words = "it has no time limit any more" if limit is None else f"its time limit is now {limit} s"
    moves.note_job(tx, job, "limit_changed", words, seen.at)


def _move_to_start(start: Start, now: datetime) -> moves.Move:
    values = {
        "attempt": start.job.attempt + 1,
        "node": start.node,
        "devices": start.devices,
        "places": start.places if len(start.places) > 1 else (),
        "reason": None,
        "waited_seconds": start.job.waited(now),
    }
    return moves.Move(start.job.id, JobState.STARTING, "starting", now, start.job.attempt, values, start.node)


def _attempt_values(move: moves.Move) -> dict[str, object]:
    if move.to is JobState.STARTING:
        values = move.values
        return {"node": values["node"] or "", "devices": values["devices"], "places": values["places"]}
    if move.to is JobState.RUNNING:
        return {"state": move.to, "started_at": move.at}
    exit_code = move.exit_code if move.exit_code is not None else move.values.get("exit_code")
    return {"state": attempt_state_after(move), "ended_at": move.at, "exit_code": exit_code, "reason": move.detail}
