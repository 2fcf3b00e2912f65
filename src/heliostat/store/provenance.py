"""What is kept so that jobs can be repeated: each content once, however many jobs share it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, and_, delete, exists, or_, select
from sqlalchemy.dialects.sqlite import insert

from heliostat.models import JobId
from heliostat.models.provenance import (
    AttemptEnvironment,
    JobProvenance,
    SourceCode,
    provenance_id,
    provenance_to_text,
    text_to_attempt_environment,
    text_to_source_code,
)
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.timestamps import to_timestamp

_records, _of_jobs, _reruns, _attempts = schema.provenance, schema.job_provenance, schema.reruns, schema.attempts
_SUBMISSION = 0  # in place of the number of an attempt
_ADD_RECORD, _ADD_OF_JOB = insert(_records).on_conflict_do_nothing(), insert(_of_jobs).on_conflict_do_nothing()


def add_source_code(tx: Transaction, code: SourceCode, job_ids: Iterable[JobId]) -> None:
    _add(tx, provenance_to_text(code), [(job_id, _SUBMISSION) for job_id in job_ids])


def add_attempt_environments(tx: Transaction, machines: Mapping[tuple[JobId, int], AttemptEnvironment]) -> None:
    """Of attempts; said again, the first word counts."""
    by_machine: dict[AttemptEnvironment, list[tuple[JobId, int]]] = {}
    for attempt, machine in machines.items():
        by_machine.setdefault(machine, []).append(attempt)
    for machine, attempts in by_machine.items():
        _add(tx, provenance_to_text(machine), attempts)


def remove_attempt_environments(tx: Transaction, attempts: Iterable[tuple[JobId, int]]) -> None:
    """To be said again, when more is known."""
    for job_id, number in attempts:
        tx.conn.execute(delete(_of_jobs).where(_of_jobs.c.job_id == job_id, _of_jobs.c.attempt == number))


def lacks_image_digest(conn: Connection, job_id: JobId, attempt: int) -> bool:
    """Whether its machine is recorded, but not what its image is."""
    machine = dict(get_provenance(conn, job_id).attempt_environments).get(attempt)
    return machine is not None and machine.image_digest is None


def add_rerun(tx: Transaction, job_ids: Iterable[JobId], of_job: JobId) -> None:
    tx.conn.execute(insert(_reruns), [{"job_id": job_id, "of_job_id": of_job} for job_id in job_ids])


def get_provenance(conn: Connection, job_id: JobId) -> JobProvenance:
    query = (
        select(_of_jobs.c.attempt, _records.c.content)
        .join(_records, _records.c.id == _of_jobs.c.provenance_id)
        .where(_of_jobs.c.job_id == job_id)
        .order_by(_of_jobs.c.attempt)
    )
    found = [(row.attempt, row.content) for row in conn.execute(query)]
    codes = [text_to_source_code(content) for attempt, content in found if attempt == _SUBMISSION]
    machines = tuple(
        (attempt, text_to_attempt_environment(content)) for attempt, content in found if attempt != _SUBMISSION
    )
    of_job = conn.execute(select(_reruns.c.of_job_id).where(_reruns.c.job_id == job_id)).scalar()
    return JobProvenance(job_id, codes[0] if codes else None, machines, of_job)


def list_reruns(conn: Connection, job_id: JobId, most: int = 20) -> list[JobId]:
    query = select(_reruns.c.job_id).where(_reruns.c.of_job_id == job_id).order_by(_reruns.c.job_id.desc())
    return list(conn.execute(query.limit(most)).scalars())


def list_attempts_without_environment(conn: Connection, since: datetime) -> list[tuple[JobId, int]]:
    """That have started, and run still or ended since then, of which no machine is recorded."""
    known = exists().where(_of_jobs.c.job_id == _attempts.c.job_id, _of_jobs.c.attempt == _attempts.c.number)
    lately = or_(_attempts.c.ended_at.is_(None), _attempts.c.ended_at > to_timestamp(since))
    query = select(_attempts.c.job_id, _attempts.c.number).where(
        and_(_attempts.c.started_at.is_not(None), lately, ~known)
    )
    return [(row.job_id, row.number) for row in conn.execute(query)]


def _add(tx: Transaction, text: str, attempts: Sequence[tuple[JobId, int]]) -> None:
    own_id = provenance_id(text)
    tx.conn.execute(_ADD_RECORD, {"id": own_id, "content": text})
    rows = [{"job_id": job_id, "attempt": number, "provenance_id": own_id} for job_id, number in attempts]
    tx.conn.execute(_ADD_OF_JOB, rows)
