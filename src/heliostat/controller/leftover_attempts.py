"""Attempts that are newer than the database, which is then one of a backup.

An attempt is recorded in the database before it starts. If the engine has attempts that the database does not
have, these were started after the backup.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from heliostat.engines.contract import Engine, LeftoverAttempt
from heliostat.models import (
    ACTIVE_STATES,
    WAITING_STATES,
    Attempt,
    AttemptId,
    Job,
    JobId,
    JobState,
    job_id_of_attempt,
)
from heliostat.store import job_writes
from heliostat.store import jobs as stored
from heliostat.store.database import Store, Transaction

_ATTEMPT_FILE = re.compile(r"(\d{1,9})\.(stdout|stderr|script|receipt)", re.ASCII)
_HELD_REASON = "it started after the backup that Heliostat was restored from; `helio release` runs it again"


@dataclass(frozen=True, slots=True)
class NewerAttempts:
    """The attempts that the database does not have."""

    of_known_jobs: tuple[LeftoverAttempt, ...] = ()  # the newest of each unfinished job
    of_unknown_jobs: tuple[LeftoverAttempt, ...] = ()  # that run


def find_newer_attempts(store: Store, engine: Engine) -> NewerAttempts:
    recorded = engine.recorded_attempts()
    if not recorded:
        return NewerAttempts()
    with store.read() as conn:
        jobs = stored.get_jobs_without_spec(conn, {job_id_of_attempt(attempt_id) for attempt_id in recorded})
    newer = {attempt_id for attempt_id in recorded if _number(attempt_id) > _last_number(jobs, attempt_id)}
    found = engine.find_leftovers(newer) if newer else []
    known: dict[JobId, LeftoverAttempt] = {}
    unknown = []
    for leftover in sorted(found, key=lambda found: _sort_key(found.id)):
        job = jobs.get(job_id_of_attempt(leftover.id))
        if job is not None and not job.is_terminal:
            known[job.id] = leftover
        elif leftover.is_running:
            unknown.append(leftover)
    return NewerAttempts(tuple(known.values()), tuple(unknown))


def adopt_newer_attempts(
    tx: Transaction, leftovers: Iterable[LeftoverAttempt], engine: Engine, now: datetime
) -> None:
    """Record that these attempts were started: the engine then reports what became of them."""
    jobs = stored.get_jobs(tx.conn, [job_id_of_attempt(leftover.id) for leftover in leftovers])
    for leftover in leftovers:
        job, number = jobs[job_id_of_attempt(leftover.id)], _number(leftover.id)
        if job.state in ACTIVE_STATES:
            job_writes.update_job(tx, job.id, {"attempt": number})
        elif engine.capabilities.has_own_queue:
            job_writes.apply_transitions(tx, _release(job, now))
            job_writes.update_job(tx, job.id, {"attempt": number, "dispatched": True, "reason": None})
        else:
            job_writes.apply_transitions(tx, [*_release(job, now), _start(job, number, engine, now)])
        adopted = stored.get_job(tx.conn, job.id)
        if adopted is not None:
            job_writes.add_attempts(tx, [Attempt(leftover.id, adopted, adopted.node or "")], now)


def hold_jobs_started_since(
    tx: Transaction, jobs_folder: Path, adopted: Collection[JobId], now: datetime
) -> list[JobId]:
    """After a restore: hold the waiting jobs whose files show that they were started after the backup. They may
    have done their work, and must not do it twice unasked."""
    held: list[JobId] = []
    for job in stored.list_unfinished_jobs(tx.conn):
        number = 0 if job.id in adopted else _last_started(jobs_folder / str(job.id))
        if number <= job.attempt:
            continue
        if job.state in WAITING_STATES:
            held.append(job.id)
        if job.state is JobState.PENDING:
            values = {"attempt": number, "reason": _HELD_REASON}
            job_writes.apply_transitions(tx, [_transition(job, JobState.HELD, "held", now, values, _HELD_REASON)])
        else:
            job_writes.update_job(tx, job.id, {"attempt": number})
    return held


def _release(job: Job, now: datetime) -> Iterator[job_writes.JobTransition]:
    if job.state is JobState.HELD:
        yield _transition(job, JobState.PENDING, "released", now, {}, None)


def _start(job: Job, number: int, engine: Engine, now: datetime) -> job_writes.JobTransition:
    node = engine.nodes()[0].name
    values = {"attempt": number, "node": node, "devices": (), "places": (), "reason": None}
    return _transition(job, JobState.STARTING, "starting", now, values, node)


def _transition(  # noqa: PLR0913, PLR0917 - the fields of a transition
    job: Job, state: JobState, kind: str, now: datetime, values: Mapping[str, Any], detail: str | None
) -> job_writes.JobTransition:
    return job_writes.JobTransition(job.id, state, kind, now, None, values, detail)


def _last_number(jobs: Mapping[JobId, Job], attempt_id: AttemptId) -> int:
    job = jobs.get(job_id_of_attempt(attempt_id))
    return job.attempt if job else 0


def _last_started(folder: Path) -> int:
    try:
        names = os.listdir(folder)
    except OSError:
        return 0
    return max((int(found[1]) for name in names if (found := _ATTEMPT_FILE.fullmatch(name))), default=0)


def _number(attempt_id: AttemptId) -> int:
    return int(attempt_id.partition(".")[2])


def _sort_key(attempt_id: AttemptId) -> tuple[JobId, int]:
    return job_id_of_attempt(attempt_id), _number(attempt_id)
