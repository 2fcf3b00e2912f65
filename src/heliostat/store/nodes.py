"""Admin settings of nodes, and reservations, in the database."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from heliostat.models import NodeState, Reservation
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.timestamps import to_datetime, to_timestamp

_nodes = schema.nodes

_reservations = schema.reservations


@dataclass(frozen=True, slots=True)
class NodeAdminSettings:
    """Settings by admins. They override those of the engine; `labels` are added."""

    state: NodeState = NodeState.UP
    reason: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    data_class: int = 0
    min_data_class: int = 0
    splits_devices: bool = False


def list_node_admin_settings(conn: Connection) -> dict[str, NodeAdminSettings]:
    return {row.name: _settings(row) for row in conn.execute(select(_nodes))}


def find_node_admin_settings(conn: Connection, name: str) -> NodeAdminSettings | None:
    row = conn.execute(select(_nodes).where(_nodes.c.name == name)).first()
    return None if row is None else _settings(row)


def set_node_admin_settings(tx: Transaction, name: str, settings: NodeAdminSettings) -> None:
    tx.conn.execute(delete(_nodes).where(_nodes.c.name == name))
    tx.conn.execute(
        insert(_nodes).values(
            name=name,
            state=settings.state.value,
            reason=settings.reason,
            labels=json.dumps(dict(settings.labels)),
            data_class=settings.data_class,
            min_data_class=settings.min_data_class,
            splits_devices=settings.splits_devices,
        )
    )
    tx.changes.nodes_changed = True


def _settings(row: Row[Any]) -> NodeAdminSettings:
    return NodeAdminSettings(
        state=NodeState(row.state),
        reason=row.reason,
        labels=json.loads(row.labels),
        data_class=row.data_class,
        min_data_class=row.min_data_class,
        splits_devices=bool(row.splits_devices),
    )


def list_reservations(conn: Connection) -> list[Reservation]:
    """By their first start, including past ones."""
    order = (_reservations.c.starts_at, _reservations.c.name)
    return [_reservation(row) for row in conn.execute(select(_reservations).order_by(*order))]


def add_reservation(tx: Transaction, reservation: Reservation) -> None:
    tx.conn.execute(
        insert(_reservations).values(
            name=reservation.name,
            project=reservation.project,
            nodes=json.dumps(reservation.nodes),
            gpus_per_node=reservation.gpus_per_node,
            starts_at=to_timestamp(reservation.starts_at),
            ends_at=to_timestamp(reservation.ends_at),
            weeks=reservation.weeks,
            reason=reservation.reason,
            time_zone=reservation.time_zone,
        )
    )
    tx.changes.rules_changed = True


def delete_reservation(tx: Transaction, name: str) -> None:
    tx.conn.execute(delete(_reservations).where(_reservations.c.name == name))
    tx.changes.rules_changed = True


def _reservation(row: Row[Any]) -> Reservation:
    return Reservation(
        name=row.name,
        nodes=tuple(json.loads(row.nodes)),
        starts_at=to_datetime(row.starts_at),
        ends_at=to_datetime(row.ends_at),
        project=row.project,
        gpus_per_node=row.gpus_per_node,
        weeks=row.weeks,
        reason=row.reason,
        time_zone=row.time_zone,
    )
