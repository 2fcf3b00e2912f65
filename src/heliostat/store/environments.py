"""Software environments in the database: requests and current use."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, insert, or_, select, update

from heliostat.models.environments import Environment, EnvironmentSpec
from heliostat.models.states import JobState
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.timestamps import to_datetime, to_timestamp

_environments, _uses, _jobs, _sessions, _notebooks = (
    schema.environments,
    schema.environment_uses,
    schema.jobs,
    schema.sessions,
    schema.notebooks,
)


@dataclass(frozen=True, slots=True)
class StoredEnvironment:
    """An environment with the state of its build job and its current use."""

    environment: Environment
    build_state: JobState | None
    build_reason: str | None
    is_needed: bool  # by an unfinished job


def find_environment(conn: Connection, digest: str) -> StoredEnvironment | None:
    row = conn.execute(_all().where(_environments.c.digest == digest)).first()
    return None if row is None else _stored_environment(row)


def find_environments_by_prefix(conn: Connection, prefix: str, user: str | None) -> list[StoredEnvironment]:
    """At most two, among those requested by this user; None: among all."""
    query = _of(user).where(_environments.c.digest.startswith(prefix, autoescape=True))
    return [_stored_environment(row) for row in conn.execute(query.limit(2))]


def list_environments(conn: Connection, user: str | None, limit: int) -> list[StoredEnvironment]:
    """Those requested by this user, or all; the last used first."""
    query = _of(user).order_by(_LAST_USE.desc(), _environments.c.digest).limit(limit)
    return [_stored_environment(row) for row in conn.execute(query)]


def has_requested_environment(conn: Connection, digest: str, user: str) -> bool:
    query = select(_uses.c.user).where(_uses.c.digest == digest, _uses.c.user == user)
    return conn.execute(query).first() is not None


def count_environments_of_user(conn: Connection, user: str) -> int:
    """Number of environments requested by this user."""
    return conn.execute(select(func.count()).where(_uses.c.user == user)).scalar_one()


def count_requesting_users(conn: Connection, digest: str) -> int:
    return conn.execute(select(func.count()).where(_uses.c.digest == digest)).scalar_one()


def list_users_needing_environment(conn: Connection, digest: str, build_job: int) -> list[str]:
    """Users with unfinished jobs that need it, except the build job."""
    by_sessions = select(_sessions.c.job_id).where(_sessions.c.environment == digest)
    by_notebooks = select(_notebooks.c.job_id).where(_notebooks.c.environment == digest)
    query = select(_jobs.c.user).where(
        or_(_jobs.c.environment == digest, _jobs.c.id.in_(by_sessions), _jobs.c.id.in_(by_notebooks)),
        _jobs.c.ended_at.is_(None),
        _jobs.c.id != build_job,
    )
    return sorted(set(conn.execute(query).scalars()))


def put_environment(tx: Transaction, environment: Environment) -> None:
    """Add it, or replace it when it is built again."""
    remove_environment_row(tx, environment.digest)
    software = environment.spec
    tx.conn.execute(
        insert(_environments).values(
            digest=environment.digest,
            kind=software.kind,
            files=json.dumps(software.files),
            python=software.python,
            platform=environment.platform,
            owner=environment.owner,
            created_by=environment.created_by,
            created_at=to_timestamp(environment.created_at),
            build_job=environment.build_job,
        )
    )
    tx.changes.rules_changed = True  # the topic that updates open pages


def record_environment_use(tx: Transaction, digest: str, user: str, at: datetime) -> None:
    tx.conn.execute(delete(_uses).where(_uses.c.digest == digest, _uses.c.user == user))
    tx.conn.execute(insert(_uses).values(digest=digest, user=user, used_at=to_timestamp(at)))


def remove_environment_use(tx: Transaction, digest: str, user: str) -> None:
    tx.conn.execute(delete(_uses).where(_uses.c.digest == digest, _uses.c.user == user))
    tx.changes.rules_changed = True


def set_environment_lock_and_size(tx: Transaction, digest: str, lock: str | None, size_bytes: int) -> None:
    """Set once it is built."""
    values = {"lock": lock, "size_bytes": size_bytes}
    tx.conn.execute(update(_environments).where(_environments.c.digest == digest).values(**values))
    tx.changes.rules_changed = True


def remove_environment(tx: Transaction, digest: str) -> None:
    remove_environment_row(tx, digest)
    tx.conn.execute(delete(_uses).where(_uses.c.digest == digest))
    tx.changes.rules_changed = True


def remove_environment_row(tx: Transaction, digest: str) -> None:
    tx.conn.execute(delete(_environments).where(_environments.c.digest == digest))


_LAST_USE = select(func.max(_uses.c.used_at)).where(_uses.c.digest == _environments.c.digest).scalar_subquery()
_LAST_END = (
    select(func.max(_jobs.c.ended_at)).where(_jobs.c.environment == _environments.c.digest).scalar_subquery()
)
_USED_BY_SESSION = (
    select(_sessions.c.job_id)
    .join(_jobs, _jobs.c.id == _sessions.c.job_id)
    .where(_sessions.c.environment == _environments.c.digest, _jobs.c.ended_at.is_(None))
)
_USED_BY_NOTEBOOK = (
    select(_notebooks.c.job_id)
    .join(_jobs, _jobs.c.id == _notebooks.c.job_id)
    .where(_notebooks.c.environment == _environments.c.digest, _jobs.c.ended_at.is_(None))
)
_IS_NEEDED = or_(
    select(_jobs.c.id).where(_jobs.c.environment == _environments.c.digest, _jobs.c.ended_at.is_(None)).exists(),
    _USED_BY_SESSION.exists(),
    _USED_BY_NOTEBOOK.exists(),
)


def _all() -> Select[Any]:
    build = _jobs.alias("build")
    return select(
        _environments,
        _LAST_USE.label("last_use"),
        _LAST_END.label("last_end"),
        _IS_NEEDED.label("is_needed"),
        build.c.state.label("build_state"),
        build.c.reason.label("build_reason"),
    ).outerjoin(build, build.c.id == _environments.c.build_job)


def _of(user: str | None) -> Select[Any]:
    if user is None:
        return _all()
    requested = select(_uses.c.digest).where(_uses.c.user == user)
    return _all().where(_environments.c.digest.in_(requested))


def _stored_environment(row: Row[Any]) -> StoredEnvironment:
    """The end of a job that used it counts as a use."""
    files = tuple((name, text) for name, text in json.loads(row.files))
    last = max((time for time in (row.last_use, row.last_end) if time is not None), default=None)
    environment = Environment(
        digest=row.digest,
        spec=EnvironmentSpec(row.kind, files, row.python),
        platform=row.platform,
        owner=row.owner,
        created_by=row.created_by,
        created_at=to_datetime(row.created_at),
        build_job=row.build_job,
        lock=row.lock,
        size_bytes=row.size_bytes,
        used_at=to_datetime(last),
    )
    state = JobState(row.build_state) if row.build_state else None
    return StoredEnvironment(environment, state, row.build_reason, bool(row.is_needed))


def add_notebook_environment(tx: Transaction, job_id: int, environment: str) -> None:
    """The environment that runs a batch notebook is needed until the job ends. Idempotent."""
    statement = insert(_notebooks).prefix_with("OR IGNORE")
    tx.conn.execute(statement.values(job_id=job_id, environment=environment))
