"""Reservations: creates Heliostat's reservations in Slurm, and converts Slurm's into Heliostat's.

A weekly reservation becomes one Slurm reservation per week, so that it keeps its time of day when clocks change,
and has an end. Jobs of its users use it without naming it (flag MAGNETIC).
"""

import contextlib
import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime

from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.command_output import SlurmReservation
from heliostat.engines.slurm.mapping import UnsupportedRequest, require_safe_word
from heliostat.errors import Conflict, EngineUnavailable
from heliostat.models import Reservation

_USER_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@$-]{0,63}")


def slurm_reservation_names(reservation: Reservation) -> tuple[str, ...]:
    """One name per week. These names cannot collide with names of other Heliostat reservations."""
    if reservation.weeks <= 1:
        return (reservation.name,)
    return tuple(f"{reservation.name}-W{week}" for week in range(1, reservation.weeks + 1))


def reservation_option(name: str, known: Collection[str]) -> str:
    """The option of `sbatch` for all remaining weeks of the reservation. Raises UnsupportedRequest."""
    pattern = re.compile(rf"{re.escape(require_safe_word(name, 'reservation'))}(?:-W\d{{1,2}})?", re.ASCII)
    names = [other for other in known if pattern.fullmatch(other)]
    if not names:
        raise UnsupportedRequest(f"Slurm has no reservation {name}")
    return f"--reservation={','.join(names)}"


def reservation_arguments(
    reservation: Reservation, unix_users: Collection[str], now: datetime
) -> Iterator[tuple[str, list[str]]]:
    """Name and arguments of `scontrol create reservation`, for each occurrence that has not ended."""
    users = sorted(name for name in unix_users if _USER_NAME.fullmatch(name))
    flags = "MAINT,IGNORE_JOBS" if reservation.project is None else "MAGNETIC,IGNORE_JOBS"
    times = list(reservation.occurrences(datetime.min.replace(tzinfo=UTC)))
    for name, (starts_at, ends_at) in zip(slurm_reservation_names(reservation), times, strict=True):
        if ends_at <= now:
            continue
        yield (
            name,
            [
                f"ReservationName={name}",
                f"Nodes={','.join(reservation.nodes)}",
                f"StartTime={'now' if starts_at <= now else f'uts{int(starts_at.timestamp())}'}",
                f"EndTime=uts{int(ends_at.timestamp())}",
                f"Users={'root' if reservation.project is None else ','.join(users)}",
                f"Flags={flags}",
            ],
        )


def from_slurm_reservation(reservation: SlurmReservation) -> Reservation:
    """A reservation that was made with Slurm's own tools."""
    owners = (("users", reservation.users), ("accounts", reservation.accounts))
    listed = [f"{kind} {', '.join(names)}" for kind, names in owners if any(names)]
    reason = f"in Slurm, for {' and '.join(listed)}" if listed else "in Slurm"
    return Reservation(
        reservation.name, reservation.nodes, reservation.starts_at, reservation.ends_at, reason=reason
    )


def create_reservations(client: SlurmClient, reservation: Reservation, unix_users: Collection[str]) -> None:
    """Raises Conflict or EngineUnavailable, after deleting those that it had created."""
    created: list[str] = []
    try:
        for name, arguments in reservation_arguments(reservation, unix_users, datetime.now(UTC)):
            client.create_reservation(arguments)
            created.append(name)
    except SlurmRefused as error:
        _undo(client, created)
        raise Conflict(f"Slurm refused: {error}.", "See `scontrol show reservation`.") from error
    except EngineUnavailable:
        _undo(client, created)
        raise


def delete_reservations(client: SlurmClient, reservation: Reservation) -> None:
    """Missing reservations count as success. Raises Conflict or EngineUnavailable."""
    existing = {found.name for found in client.reservations()}
    for name in slurm_reservation_names(reservation):
        try:
            if name in existing:
                client.delete_reservation(name)
        except SlurmRefused as error:
            hint = "See `scontrol show reservation`; running jobs in it must end first."
            raise Conflict(f"Slurm refused: {error}.", hint) from error


def _undo(client: SlurmClient, created: Collection[str]) -> None:
    for name in created:
        with contextlib.suppress(SlurmRefused, EngineUnavailable):
            client.delete_reservation(name)
