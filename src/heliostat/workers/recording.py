"""Writes what a round of the controller has seen and decided: in one transaction, each move guarded."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from heliostat.models import ACTIVE, Attempt, AttemptId, Ended, JobState, Observation, Started
from heliostat.scheduling.snapshot import Plan, Start, Stop
from heliostat.store import jobs as stored
from heliostat.store import moves
from heliostat.store.database import Transaction
from heliostat.workers.outcome import attempt_state_after

MoveFor = Callable[[Observation], moves.Move | None]


@dataclass(slots=True)
class Round:
    """What one round wants to record."""

    observations: list[Observation]
    plan: Plan
    now: datetime
    started: list[Attempt] = field(default_factory=list)
    ended: list[AttemptId] = field(default_factory=list)


def record(tx: Transaction, this_round: Round, move_for: MoveFor) -> None:
    """While we hold the store: what was seen, then what is to start. Each is guarded by the state it finds."""
    this_round.started, this_round.ended = [], []
    _record_observations(tx, this_round, move_for)
    starts = this_round.plan.starts
    wishes = [_move_to_start(start, this_round.now) for start in starts]
    done = {move.job_id for move in moves.move_jobs(tx, wishes)}
    jobs = stored.get_jobs(tx.conn, done) if done else {}
    this_round.started = [
        Attempt(job.attempt_id, job, start.node, start.devices, job.places, start.gpu_type)
        for start in starts
        if (job := jobs.get(start.job.id))
    ]
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


def _record_observations(tx: Transaction, this_round: Round, move_for: MoveFor) -> None:
    for kind in (Started, Ended):
        wishes = [move for seen in this_round.observations if isinstance(seen, kind) and (move := move_for(seen))]
        for move in moves.move_jobs(tx, wishes):
            moves.set_attempt(tx, move.job_id, move.attempt or 0, _attempt_values(move))
    this_round.ended = [seen.attempt_id for seen in this_round.observations if isinstance(seen, Ended)]


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
    if move.to is JobState.RUNNING:
        return {"state": move.to, "started_at": move.at}
    exit_code = move.values.get("exit_code")
    return {"state": attempt_state_after(move), "ended_at": move.at, "exit_code": exit_code, "reason": move.detail}
