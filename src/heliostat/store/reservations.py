"""Reservations in the database."""

import json
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from heliostat.models import Reservation
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.times import to_seconds, to_time

_reservations = schema.reservations


def list_reservations(conn: Connection) -> list[Reservation]:
    """By their first start, also those that are over."""
    order = (_reservations.c.starts_at, _reservations.c.name)
    return [_reservation(row) for row in conn.execute(select(_reservations).order_by(*order))]


def add_reservation(tx: Transaction, reservation: Reservation) -> None:
    tx.conn.execute(
        insert(_reservations).values(
            name=reservation.name,
            project=reservation.project,
            nodes=json.dumps(reservation.nodes),
            gpus_per_node=reservation.gpus_per_node,
            starts_at=to_seconds(reservation.starts_at),
            ends_at=to_seconds(reservation.ends_at),
            weeks=reservation.weeks,
            reason=reservation.reason,
            time_zone=reservation.time_zone,
        )
    )
    tx.changes.rules = True


def delete_reservation(tx: Transaction, name: str) -> None:
    tx.conn.execute(delete(_reservations).where(_reservations.c.name == name))
    tx.changes.rules = True


def _reservation(row: Row[Any]) -> Reservation:
    return Reservation(
        name=row.name,
        nodes=tuple(json.loads(row.nodes)),
        starts_at=to_time(row.starts_at),
        ends_at=to_time(row.ends_at),
        project=row.project,
        gpus_per_node=row.gpus_per_node,
        weeks=row.weeks,
        reason=row.reason,
        time_zone=row.time_zone,
    )
