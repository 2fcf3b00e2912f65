"""Provenance of jobs in the database: equal contents are stored once and shared."""

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
_SUBMISSION = 0  # instead of an attempt number
_ADD_RECORD, _ADD_OF_JOB = insert(_records).on_conflict_do_nothing(), insert(_of_jobs).on_conflict_do_nothing()


def add_source_code(tx: Transaction, code: SourceCode, job_ids: Iterable[JobId]) -> None:
    _add(tx, provenance_to_text(code), [(job_id, _SUBMISSION) for job_id in job_ids])


def add_attempt_environments(
    tx: Transaction, environments: Mapping[tuple[JobId, int], AttemptEnvironment]
) -> None:
    """An existing record of an attempt stays."""
    attempts_by_environment: dict[AttemptEnvironment, list[tuple[JobId, int]]] = {}
    for attempt, environment in environments.items():
        attempts_by_environment.setdefault(environment, []).append(attempt)
    for environment, attempts in attempts_by_environment.items():
        _add(tx, provenance_to_text(environment), attempts)


def remove_attempt_environments(tx: Transaction, attempts: Iterable[tuple[JobId, int]]) -> None:
    """Before they are recorded again with more data."""
    for job_id, number in attempts:
        tx.conn.execute(delete(_of_jobs).where(_of_jobs.c.job_id == job_id, _of_jobs.c.attempt == number))


def lacks_image_digest(conn: Connection, job_id: JobId, attempt: int) -> bool:
    """Whether its environment is recorded without the digest of its image."""
    environment = dict(get_provenance(conn, job_id).attempt_environments).get(attempt)
    return environment is not None and environment.image_digest is None


def add_rerun(tx: Transaction, job_ids: Iterable[JobId], of_job: JobId) -> None:
    tx.conn.execute(insert(_reruns), [{"job_id": job_id, "of_job_id": of_job} for job_id in job_ids])


def get_provenance(conn: Connection, job_id: JobId) -> JobProvenance:
    query = (
        select(_of_jobs.c.attempt, _records.c.content)
        .join(_records, _records.c.id == _of_jobs.c.provenance_id)
        .where(_of_jobs.c.job_id == job_id)
        .order_by(_of_jobs.c.attempt)
    )
    records = [(row.attempt, row.content) for row in conn.execute(query)]
    codes = [text_to_source_code(content) for attempt, content in records if attempt == _SUBMISSION]
    environments = tuple(
        (attempt, text_to_attempt_environment(content)) for attempt, content in records if attempt != _SUBMISSION
    )
    of_job = conn.execute(select(_reruns.c.of_job_id).where(_reruns.c.job_id == job_id)).scalar()
    return JobProvenance(job_id, codes[0] if codes else None, environments, of_job)


def list_reruns(conn: Connection, job_id: JobId, limit: int = 20) -> list[JobId]:
    query = select(_reruns.c.job_id).where(_reruns.c.of_job_id == job_id).order_by(_reruns.c.job_id.desc())
    return list(conn.execute(query.limit(limit)).scalars())


def list_attempts_without_environment(conn: Connection, since: datetime) -> list[tuple[JobId, int]]:
    """Attempts that run or ended after `since`, without a recorded environment."""
    known = exists().where(_of_jobs.c.job_id == _attempts.c.job_id, _of_jobs.c.attempt == _attempts.c.number)
    is_recent = or_(_attempts.c.ended_at.is_(None), _attempts.c.ended_at > to_timestamp(since))
    query = select(_attempts.c.job_id, _attempts.c.number).where(
        and_(_attempts.c.started_at.is_not(None), is_recent, ~known)
    )
    return [(row.job_id, row.number) for row in conn.execute(query)]


def _add(tx: Transaction, text: str, attempts: Sequence[tuple[JobId, int]]) -> None:
    record_id = provenance_id(text)
    tx.conn.execute(_ADD_RECORD, {"id": record_id, "content": text})
    rows = [{"job_id": job_id, "attempt": number, "provenance_id": record_id} for job_id, number in attempts]
    tx.conn.execute(_ADD_OF_JOB, rows)
