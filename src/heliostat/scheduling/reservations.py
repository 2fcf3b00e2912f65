"""Reservations: the times for which nodes or devices are set aside, for a project or for nobody while they are
maintained, and the jobs that run inside one. Pure.

While a reservation holds, its nodes bear a label of it, and its jobs ask for that label: whoever plans need not
know more.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from heliostat.models import Job, Node, PlacementRequest, Reservation
from heliostat.scheduling.capacity import BookedCapacity, Capacity
from heliostat.scheduling.free_resources import FreeResources
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.snapshot import Snapshot

_ALWAYS = -math.inf


@dataclass(frozen=True, slots=True)
class ReservationWindow:
    """One time for which a reservation holds."""

    start: float
    end: float
    nodes: Array
    project: str | None
    gpus_per_node: int | None

    def blocks_project(self, project: str) -> bool:
        return self.project is None or self.project != project


def list_reservation_windows(snapshot: Snapshot, now: datetime) -> list[ReservationWindow]:
    """Those that are not over, in order of time."""
    index = snapshot.node_table.index_by_name
    found = []
    for reservation in snapshot.reservations:
        nodes = np.array([index[name] for name in reservation.nodes if name in index], np.int64)
        if not len(nodes):
            continue
        for starts_at, ends_at in reservation.occurrences(now):
            start, end = starts_at.timestamp(), ends_at.timestamp()
            found.append(ReservationWindow(start, end, nodes, reservation.project, reservation.gpus_per_node))
    return sorted(found, key=lambda window: window.start)


def book_capacity_for_window(
    window: ReservationWindow, snapshot: Snapshot, rooms: Capacity, ends: Array, now: float
) -> BookedCapacity:
    """What others find on its nodes from its start on. Those whom it is for may hold part of it already."""
    machines, nodes = snapshot.node_table, window.nodes
    at = _ALWAYS if window.start <= now else window.start
    if window.gpus_per_node is None:
        nobody = np.zeros(len(nodes), np.int64)
        nothing = FreeResources(
            nobody, nobody.copy(), np.zeros((len(nodes), len(machines.device_kinds)), np.int64), nobody.copy()
        )
        return BookedCapacity(at, nodes, nothing, window.project)
    still_there = snapshot.running[ends > window.start] if window.start > now else snapshot.running
    free = rooms.free.copy()
    leaving = snapshot.running[ends <= window.start] if window.start > now else snapshot.running[:0]
    free.add_rows(leaving["node"], leaving)
    left = free.select_nodes(nodes)
    kept = np.maximum(window.gpus_per_node - _held_by(window, still_there, snapshot), 0)
    left.gpus = _less(left.gpus, kept)
    part = kept / np.maximum(machines.gpus[nodes].sum(axis=1), 1)
    left.cpus = left.cpus - np.ceil(machines.cpus[nodes] * part).astype(np.int64)
    left.memory_mib = left.memory_mib - np.ceil(machines.memory_mib[nodes] * part).astype(np.int64)
    left.running_count = left.running_count + (kept > 0)  # nobody else is alone there
    return BookedCapacity(at, nodes, left, window.project, kept)


def _held_by(window: ReservationWindow, running: Array, snapshot: Snapshot) -> Array:
    """GPUs that jobs of its project hold on each of its nodes."""
    mine = np.array([project == window.project for project, _ in snapshot.share_tree.leaves], bool)
    rows = running[mine[running["leaf"]]] if len(mine) else running[:0]
    per_node = np.bincount(rows["node"], rows["devices"], len(snapshot.node_table.nodes))
    return np.asarray(per_node[window.nodes], np.int64)


def _less(gpus: Array, kept: Array) -> Array:
    """Take so many devices away from each node, of whatever kind there is most."""
    left = gpus.copy()
    for place, count in enumerate(kept):
        for _ in range(int(count)):
            if left.shape[1] and left[place].max() > 0:
                left[place, int(left[place].argmax())] -= 1
    return left


@dataclass(frozen=True, slots=True)
class ReservationAccess:
    """When a job's reservation is open for it next."""

    is_open: bool = True
    opens_at: datetime | None = None  # None: it is open, or never will be again


def find_reservation_access(job: Job, reservations: Iterable[Reservation], now: datetime) -> ReservationAccess:
    """Of a job that names none, always."""
    name = job.placement.reservation
    if name is None:
        return ReservationAccess()
    found = next((one for one in reservations if one.name == name and one.project == job.project), None)
    times = next(iter(found.occurrences(now)), None) if found else None
    if times is None:
        return ReservationAccess(is_open=False)
    return ReservationAccess() if times[0] <= now else ReservationAccess(is_open=False, opens_at=times[0])


def explain_closed_reservation(job: Job, opening: ReservationAccess) -> str | None:
    """Why it has no place in line yet; None: it has one."""
    if opening.is_open:
        return None
    name = job.placement.reservation
    if opening.opens_at is None:
        return f"its reservation {name} is over or was deleted; cancel it and submit it without --reservation"
    return f"waits for the reservation {name}, which begins at {opening.opens_at:%Y-%m-%d %H:%M} UTC"


def with_reservation_label(placement: PlacementRequest) -> PlacementRequest:
    """As the planner sees it."""
    if placement.reservation is None:
        return placement
    return replace(placement, labels=(*placement.labels, _label(placement.reservation)))


def active_reservation_names(reservations: Iterable[Reservation], now: datetime) -> frozenset[str]:
    return frozenset(one.name for one in reservations if one.project is not None and one.is_active_at(now))


def add_reservation_labels(
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
