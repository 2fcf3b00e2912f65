"""Jobs that run inside a reservation: when it is open for them, and where. Pure.

While a reservation holds, its nodes bear a label of it, and its jobs ask for that label: whoever plans need not
know more.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from heliostat.models import Job, Node, Placement, Reservation


@dataclass(frozen=True, slots=True)
class Opening:
    """When a job's reservation is open for it next."""

    is_open: bool = True
    opens_at: datetime | None = None  # None: it is open, or never will be again


def opening_of(job: Job, reservations: Iterable[Reservation], now: datetime) -> Opening:
    """Of a job that names none, always."""
    name = job.placement.reservation
    if name is None:
        return Opening()
    found = next((one for one in reservations if one.name == name and one.project == job.project), None)
    times = next(iter(found.occurrences(now)), None) if found else None
    if times is None:
        return Opening(is_open=False)
    return Opening() if times[0] <= now else Opening(is_open=False, opens_at=times[0])


def closed_words(job: Job, opening: Opening) -> str | None:
    """Why it has no place in line yet; None: it has one."""
    if opening.is_open:
        return None
    name = job.placement.reservation
    if opening.opens_at is None:
        return f"its reservation {name} is over or was deleted; cancel it and submit it without --reservation"
    return f"waits for the reservation {name}, which begins at {opening.opens_at:%Y-%m-%d %H:%M} UTC"


def inside(placement: Placement) -> Placement:
    """As the planner sees it."""
    if placement.reservation is None:
        return placement
    return replace(placement, labels=(*placement.labels, _label(placement.reservation)))


def open_names(reservations: Iterable[Reservation], now: datetime) -> frozenset[str]:
    return frozenset(one.name for one in reservations if one.project is not None and one.holds_at(now))


def labelled(
    nodes: tuple[Node, ...], reservations: Sequence[Reservation], names: Collection[str]
) -> tuple[Node, ...]:
    """The nodes, each with the labels of the open reservations it is in."""
    held: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for one in reservations:
        for node in one.nodes if one.name in names else ():
            held[node][_label(one.name)] = ""
    return tuple(
        replace(node, labels={**node.labels, **held[node.name]}) if node.name in held else node for node in nodes
    )


def _label(name: str) -> str:
    """No label that people can give holds a space."""
    return f"reservation {name}"
