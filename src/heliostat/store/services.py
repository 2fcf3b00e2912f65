"""Services and their replicas in the database."""

from collections.abc import Collection
from dataclasses import fields
from enum import Enum
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, or_, select, update
from sqlalchemy.sql import ColumnElement

from heliostat.models import JobId, JobRequest
from heliostat.models.services import (
    HealthCheck,
    Replica,
    ReplicaHealth,
    Service,
    ServiceId,
    ServiceState,
    ServiceVisibility,
)
from heliostat.store.database import Transaction
from heliostat.store.dataclass_json import dataclass_to_text, text_to_dataclass
from heliostat.store.schema import service_replicas, services
from heliostat.store.timestamps import to_datetime, to_timestamp

_s, _r = services.c, service_replicas.c
_SERVICE = tuple(one.name for one in fields(Service))
_REPLICA = tuple(one.name for one in fields(Replica))
_TIMES = frozenset({"created_at", "failed_at", "retry_at", "healthy_at", "draining_at"})
_RECORDS = {"request": JobRequest, "check": HealthCheck}
_WORDS = {"state": ServiceState, "visibility": ServiceVisibility, "health": ReplicaHealth}


def find_service(conn: Connection, name: str) -> Service | None:
    row = conn.execute(select(services).where(_s.name == name)).first()
    return None if row is None else Service(**_read(row, _SERVICE))


def find_service_by_id(conn: Connection, service_id: ServiceId) -> Service | None:
    row = conn.execute(select(services).where(_s.id == service_id)).first()
    return None if row is None else Service(**_read(row, _SERVICE))


def list_services(
    conn: Connection, *, user: str | None = None, projects: Collection[str] = (), public: bool = False
) -> list[Service]:
    """By name: those of this person, those these projects may see, those everybody may; None: all there are."""
    query = select(services).order_by(_s.name)
    if user is not None:
        seen: list[ColumnElement[bool]] = [_s.user == user, _s.project.in_(projects)]
        query = query.where(or_(*seen, _s.visibility == ServiceVisibility.PUBLIC.value) if public else or_(*seen))
    return [Service(**_read(row, _SERVICE)) for row in conn.execute(query)]


def count_services_of_user(conn: Connection, user: str) -> int:
    return conn.execute(select(func.count()).where(_s.user == user)).scalar_one()


def list_services_to_reconcile(conn: Connection) -> list[Service]:
    """Those that are wanted, and those of which something is left."""
    left = select(_r.service_id).where(_r.is_over.is_(False))
    query = select(services).where(or_(_s.state == ServiceState.ACTIVE.value, _s.id.in_(left))).order_by(_s.id)
    return [Service(**_read(row, _SERVICE)) for row in conn.execute(query)]


def add_service(tx: Transaction, wish: Service) -> ServiceId:
    values = {name: value for name, value in _plain(wish, _SERVICE).items() if name != "id"}
    made = tx.conn.execute(insert(services).values(values)).inserted_primary_key
    tx.changes.services_changed = True
    return int(made[0]) if made else 0


def update_service(tx: Transaction, service_id: ServiceId, **values: Any) -> None:
    plain = {name: _told(name, value) for name, value in values.items()}
    tx.conn.execute(update(services).where(_s.id == service_id).values(plain))
    tx.changes.services_changed = True


def remove_service(tx: Transaction, service_id: ServiceId) -> None:
    tx.conn.execute(delete(service_replicas).where(_r.service_id == service_id))
    tx.conn.execute(delete(services).where(_s.id == service_id))
    tx.changes.services_changed = True


def list_live_replicas(conn: Connection, service_id: ServiceId) -> list[Replica]:
    """Those not known to be over, oldest first."""
    query = select(service_replicas).where(_r.service_id == service_id, _r.is_over.is_(False))
    return [Replica(**_read(row, _REPLICA)) for row in conn.execute(query.order_by(_r.job_id))]


def list_newest_replicas(conn: Connection, service_id: ServiceId, limit: int) -> list[Replica]:
    query = select(service_replicas).where(_r.service_id == service_id).order_by(_r.job_id.desc()).limit(limit)
    return [Replica(**_read(row, _REPLICA)) for row in conn.execute(query)]


def find_service_of_job(conn: Connection, job_id: JobId) -> str | None:
    """The name of the service whose replica this job is."""
    query = select(_s.name).join(service_replicas, _r.service_id == _s.id).where(_r.job_id == job_id)
    found: str | None = conn.execute(query).scalar()
    return found


def add_replica(tx: Transaction, replica: Replica) -> None:
    tx.conn.execute(insert(service_replicas).values(_plain(replica, _REPLICA)))
    tx.changes.services_changed = True


def update_replica(tx: Transaction, job_id: JobId, **values: Any) -> None:
    plain = {name: _told(name, value) for name, value in values.items()}
    tx.conn.execute(update(service_replicas).where(_r.job_id == job_id).values(plain))
    tx.changes.services_changed = True


def prune_replicas(tx: Transaction, service_id: ServiceId, kept: int) -> None:
    """Of those that are over, the newest so many are kept."""
    over = select(_r.job_id).where(_r.service_id == service_id, _r.is_over.is_(True))
    old = over.order_by(_r.job_id.desc()).offset(kept).limit(-1)
    tx.conn.execute(delete(service_replicas).where(_r.job_id.in_(old)))


def _plain(record: Any, names: Collection[str]) -> dict[str, Any]:
    return {name: _told(name, getattr(record, name)) for name in names}


def _told(name: str, value: Any) -> Any:
    if name in _RECORDS:
        return dataclass_to_text(value)
    if name in _TIMES:
        return None if value is None else to_timestamp(value)
    return value.value if isinstance(value, Enum) else value


def _read(row: Row[Any], names: Collection[str]) -> dict[str, Any]:
    return {name: _value(name, row._mapping[name]) for name in names}


def _value(name: str, value: Any) -> Any:
    if name in _RECORDS:
        return text_to_dataclass(_RECORDS[name], value)
    if name in _TIMES:
        return None if value is None else to_datetime(value)
    return _WORDS[name](value) if name in _WORDS else value
