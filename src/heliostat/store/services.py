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
_SERVICE_FIELDS = tuple(field.name for field in fields(Service))
_REPLICA_FIELDS = tuple(field.name for field in fields(Replica))
_TIMES = frozenset({"created_at", "failed_at", "retry_at", "healthy_at", "draining_at"})
_RECORDS = {"request": JobRequest, "check": HealthCheck}
_ENUMS = {"state": ServiceState, "visibility": ServiceVisibility, "health": ReplicaHealth}


def find_service(conn: Connection, name: str) -> Service | None:
    row = conn.execute(select(services).where(_s.name == name)).first()
    return None if row is None else Service(**_from_row(row, _SERVICE_FIELDS))


def find_service_by_id(conn: Connection, service_id: ServiceId) -> Service | None:
    row = conn.execute(select(services).where(_s.id == service_id)).first()
    return None if row is None else Service(**_from_row(row, _SERVICE_FIELDS))


def list_services(
    conn: Connection, *, user: str | None = None, projects: Collection[str] = (), public: bool = False
) -> list[Service]:
    """By name: services of this user, of these projects, and public ones; None: all."""
    query = select(services).order_by(_s.name)
    if user is not None:
        visible: list[ColumnElement[bool]] = [_s.user == user, _s.project.in_(projects)]
        if public:
            visible.append(_s.visibility == ServiceVisibility.PUBLIC.value)
        query = query.where(or_(*visible))
    return [Service(**_from_row(row, _SERVICE_FIELDS)) for row in conn.execute(query)]


def count_services_of_user(conn: Connection, user: str) -> int:
    return conn.execute(select(func.count()).where(_s.user == user)).scalar_one()


def list_services_to_reconcile(conn: Connection) -> list[Service]:
    """Active services, and stopped ones with remaining replicas."""
    with_replicas = select(_r.service_id).where(_r.is_over.is_(False))
    query = (
        select(services)
        .where(or_(_s.state == ServiceState.ACTIVE.value, _s.id.in_(with_replicas)))
        .order_by(_s.id)
    )
    return [Service(**_from_row(row, _SERVICE_FIELDS)) for row in conn.execute(query)]


def add_service(tx: Transaction, service: Service) -> ServiceId:
    values = {name: value for name, value in _to_columns(service, _SERVICE_FIELDS).items() if name != "id"}
    key = tx.conn.execute(insert(services).values(values)).inserted_primary_key
    tx.changes.services_changed = True
    return int(key[0]) if key else 0


def update_service(tx: Transaction, service_id: ServiceId, **values: Any) -> None:
    columns = {name: _to_column(name, value) for name, value in values.items()}
    tx.conn.execute(update(services).where(_s.id == service_id).values(columns))
    tx.changes.services_changed = True


def remove_service(tx: Transaction, service_id: ServiceId) -> None:
    tx.conn.execute(delete(service_replicas).where(_r.service_id == service_id))
    tx.conn.execute(delete(services).where(_s.id == service_id))
    tx.changes.services_changed = True


def list_live_replicas(conn: Connection, service_id: ServiceId) -> list[Replica]:
    """Replicas that have not ended, oldest first."""
    query = select(service_replicas).where(_r.service_id == service_id, _r.is_over.is_(False))
    return [Replica(**_from_row(row, _REPLICA_FIELDS)) for row in conn.execute(query.order_by(_r.job_id))]


def list_newest_replicas(conn: Connection, service_id: ServiceId, limit: int) -> list[Replica]:
    query = select(service_replicas).where(_r.service_id == service_id).order_by(_r.job_id.desc()).limit(limit)
    return [Replica(**_from_row(row, _REPLICA_FIELDS)) for row in conn.execute(query)]


def find_service_of_job(conn: Connection, job_id: JobId) -> str | None:
    """The name of the service to which this replica job belongs."""
    query = select(_s.name).join(service_replicas, _r.service_id == _s.id).where(_r.job_id == job_id)
    name: str | None = conn.execute(query).scalar()
    return name


def add_replica(tx: Transaction, replica: Replica) -> None:
    tx.conn.execute(insert(service_replicas).values(_to_columns(replica, _REPLICA_FIELDS)))
    tx.changes.services_changed = True


def update_replica(tx: Transaction, job_id: JobId, **values: Any) -> None:
    columns = {name: _to_column(name, value) for name, value in values.items()}
    tx.conn.execute(update(service_replicas).where(_r.job_id == job_id).values(columns))
    tx.changes.services_changed = True


def prune_replicas(tx: Transaction, service_id: ServiceId, kept: int) -> None:
    """Keep only the newest ended replicas."""
    ended = select(_r.job_id).where(_r.service_id == service_id, _r.is_over.is_(True))
    old = ended.order_by(_r.job_id.desc()).offset(kept).limit(-1)
    tx.conn.execute(delete(service_replicas).where(_r.job_id.in_(old)))


def _to_columns(record: Any, names: Collection[str]) -> dict[str, Any]:
    return {name: _to_column(name, getattr(record, name)) for name in names}


def _to_column(name: str, value: Any) -> Any:
    if name in _RECORDS:
        return dataclass_to_text(value)
    if name in _TIMES:
        return None if value is None else to_timestamp(value)
    return value.value if isinstance(value, Enum) else value


def _from_row(row: Row[Any], names: Collection[str]) -> dict[str, Any]:
    return {name: _from_column(name, row._mapping[name]) for name in names}


def _from_column(name: str, value: Any) -> Any:
    if name in _RECORDS:
        return text_to_dataclass(_RECORDS[name], value)
    if name in _TIMES:
        return None if value is None else to_datetime(value)
    return _ENUMS[name](value) if name in _ENUMS else value
