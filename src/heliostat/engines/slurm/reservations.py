"""Reservations of ours as reservations of Slurm, and the other way round: pure.

A weekly one becomes one of Slurm's for each week, so that it keeps its time of day when clocks change, and ends.
Jobs of those it is for are drawn to it (MAGNETIC): nobody has to name it.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from heliostat.engines.slurm.parse import expand_hosts
from heliostat.engines.slurm.terms import Unfit, word
from heliostat.models import Reservation

_PAIR = re.compile(r"(\w+)=(\S*)")
_PERSON = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@$-]{0,63}")


@dataclass(frozen=True, slots=True)
class SlurmReservation:
    name: str
    nodes: tuple[str, ...]
    starts_at: datetime
    ends_at: datetime
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()


def names_of(reservation: Reservation) -> tuple[str, ...]:
    """In Slurm: one for each week. No reservation of ours can have the name of another's week."""
    if reservation.weeks <= 1:
        return (reservation.name,)
    return tuple(f"{reservation.name}-W{week}" for week in range(1, reservation.weeks + 1))


def reservation_option(name: str, known: Collection[str]) -> str:
    """For `sbatch`: any of its weeks that Slurm still has. Raises Unfit."""
    weeks = re.compile(rf"{re.escape(word(name, 'reservation'))}(?:-W\d{{1,2}})?", re.ASCII)
    names = [one for one in known if weeks.fullmatch(one)]
    if not names:
        raise Unfit(f"Slurm has no reservation {name} now")
    return f"--reservation={','.join(names)}"


def words_to_create(
    wish: Reservation, unix_users: Collection[str], now: datetime
) -> Iterator[tuple[str, list[str]]]:
    """Name and words of `scontrol create reservation`, for each time that is not over."""
    people = sorted(name for name in unix_users if _PERSON.fullmatch(name))
    flags = "MAINT,IGNORE_JOBS" if wish.project is None else "MAGNETIC,IGNORE_JOBS"
    times = list(wish.occurrences(datetime.min.replace(tzinfo=UTC)))
    for name, (starts_at, ends_at) in zip(names_of(wish), times, strict=True):
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


def reservations_of(text: str) -> Iterator[SlurmReservation]:
    """Of `scontrol --oneliner show reservation`, with times in seconds since 1970."""
    for line in text.splitlines():
        words = dict(_PAIR.findall(line))
        name, begin, end = (words.get(key, "") for key in ("ReservationName", "StartTime", "EndTime"))
        if name and begin.isdecimal() and end.isdecimal():
            nodes = expand_hosts(_filled(words, "Nodes"))
            people, accounts = (tuple(_filled(words, key).split(",")) for key in ("Users", "Accounts"))
            starts_at, ends_at = (datetime.fromtimestamp(int(moment), UTC) for moment in (begin, end))
            yield SlurmReservation(name, nodes, starts_at, ends_at, people, accounts)


def as_ours(reservation: SlurmReservation) -> Reservation:
    """One that was made with Slurm's own tools: for whom it is, Slurm says."""
    whose = [f"{what} {', '.join(names)}" for what, names in _whose(reservation) if any(names)]
    reason = f"in Slurm, for {' and '.join(whose)}" if whose else "in Slurm"
    return Reservation(
        reservation.name, reservation.nodes, reservation.starts_at, reservation.ends_at, reason=reason
    )


def _whose(reservation: SlurmReservation) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "users", reservation.users
    yield "accounts", reservation.accounts


def _filled(words: Mapping[str, str], key: str) -> str:
    value = words.get(key, "")
    return "" if value == "(null)" else value
