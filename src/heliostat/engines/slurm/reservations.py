"""Reservations of ours as reservations of Slurm, and the other way round.

A weekly one becomes one of Slurm's for each week, so that it keeps its time of day when clocks change, and ends.
Jobs of those it is for are drawn to it (MAGNETIC): nobody has to name it.
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

_PERSON = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@$-]{0,63}")


def slurm_reservation_names(reservation: Reservation) -> tuple[str, ...]:
    """In Slurm: one for each week. No reservation of ours can have the name of another's week."""
    if reservation.weeks <= 1:
        return (reservation.name,)
    return tuple(f"{reservation.name}-W{week}" for week in range(1, reservation.weeks + 1))


def reservation_option(name: str, known: Collection[str]) -> str:
    """For `sbatch`: any of its weeks that Slurm still has. Raises Unfit."""
    weeks = re.compile(rf"{re.escape(require_safe_word(name, 'reservation'))}(?:-W\d{{1,2}})?", re.ASCII)
    names = [one for one in known if weeks.fullmatch(one)]
    if not names:
        raise UnsupportedRequest(f"Slurm has no reservation {name} now")
    return f"--reservation={','.join(names)}"


def reservation_arguments(
    wish: Reservation, unix_users: Collection[str], now: datetime
) -> Iterator[tuple[str, list[str]]]:
    """Name and words of `scontrol create reservation`, for each time that is not over."""
    people = sorted(name for name in unix_users if _PERSON.fullmatch(name))
    flags = "MAINT,IGNORE_JOBS" if wish.project is None else "MAGNETIC,IGNORE_JOBS"
    times = list(wish.occurrences(datetime.min.replace(tzinfo=UTC)))
    for name, (starts_at, ends_at) in zip(slurm_reservation_names(wish), times, strict=True):
        if ends_at <= now:
            continue
        yield (
            name,
            [
                f"ReservationName={name}",
                f"Nodes={','.join(wish.nodes)}",
                f"StartTime={'now' if starts_at <= now else f'uts{int(starts_at.timestamp())}'}",
                f"EndTime=uts{int(ends_at.timestamp())}",
                f"Users={'root' if wish.project is None else ','.join(people)}",
                f"Flags={flags}",
            ],
        )


def from_slurm_reservation(reservation: SlurmReservation) -> Reservation:
    """One that was made with Slurm's own tools: for whom it is, Slurm says."""
    whose = [f"{what} {', '.join(names)}" for what, names in _whose(reservation) if any(names)]
    reason = f"in Slurm, for {' and '.join(whose)}" if whose else "in Slurm"
    return Reservation(
        reservation.name, reservation.nodes, reservation.starts_at, reservation.ends_at, reason=reason
    )


def _whose(reservation: SlurmReservation) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "users", reservation.users
    yield "accounts", reservation.accounts


def create_reservations(client: SlurmClient, wish: Reservation, unix_users: Collection[str]) -> None:
    """Raises Conflict or EngineUnavailable; what was made until then is taken back."""
    made: list[str] = []
    try:
        for name, words in reservation_arguments(wish, unix_users, datetime.now(UTC)):
            client.create_reservation(words)
            made.append(name)
    except SlurmRefused as error:
        _take_back(client, made)
        raise Conflict(f"Slurm refuses it: {error}.", "See `scontrol show reservation`.") from error
    except EngineUnavailable:
        _take_back(client, made)
        raise


def delete_reservations(client: SlurmClient, reservation: Reservation) -> None:
    """Already gone is success. Raises Conflict or EngineUnavailable."""
    known = {one.name for one in client.reservations()}
    for name in slurm_reservation_names(reservation):
        try:
            if name in known:
                client.delete_reservation(name)
        except SlurmRefused as error:
            hint = "See `scontrol show reservation`; jobs that run in it must end first."
            raise Conflict(f"Slurm refuses it: {error}.", hint) from error


def _take_back(client: SlurmClient, made: Collection[str]) -> None:
    for name in made:
        with contextlib.suppress(SlurmRefused, EngineUnavailable):
            client.delete_reservation(name)
