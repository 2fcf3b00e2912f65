"""Reservations of nodes or devices for a project or for maintenance, and the jobs that run inside one. Pure.

While a reservation is active, its nodes have an internal label and its jobs request that label, so the planner
needs no further rule.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from heliostat.models import Job, Node, PlacementRequest, Reservation
from heliostat.scheduling.free_resources import FreeResources
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.planned_capacity import BookedCapacity, Capacity
from heliostat.scheduling.snapshot import Snapshot

_ALWAYS = -math.inf


@dataclass(frozen=True, slots=True)
class ReservationWindow:
    """One period in which a reservation is active."""

    start: float
    end: float
    nodes: Array
    project: str | None
    gpus_per_node: int | None

    def blocks_project(self, project: str) -> bool:
        return self.project is None or self.project != project


def list_reservation_windows(snapshot: Snapshot, now: datetime) -> list[ReservationWindow]:
    """Periods that have not ended, in order of start."""
    index = snapshot.node_table.index_by_name
    result = []
    for reservation in snapshot.reservations:
        nodes = np.array([index[name] for name in reservation.nodes if name in index], np.int64)
        if not len(nodes):
            continue
        for starts_at, ends_at in reservation.occurrences(now):
            start, end = starts_at.timestamp(), ends_at.timestamp()
            result.append(ReservationWindow(start, end, nodes, reservation.project, reservation.gpus_per_node))
    return sorted(result, key=lambda window: window.start)


def book_capacity_for_window(
    window: ReservationWindow, snapshot: Snapshot, capacity: Capacity, ends: Array, now: float
) -> BookedCapacity:
    """What other projects can use on its nodes from its start on. Jobs of its own project count against it."""
    node_table, nodes = snapshot.node_table, window.nodes
    at = _ALWAYS if window.start <= now else window.start
    if window.gpus_per_node is None:
        zeros = np.zeros(len(nodes), np.int64)
        none_free = FreeResources(
            zeros, zeros.copy(), np.zeros((len(nodes), len(node_table.device_kinds)), np.int64), zeros.copy()
        )
        return BookedCapacity(at, nodes, none_free, window.project)
    still_there = snapshot.running[ends > window.start] if window.start > now else snapshot.running
    free = capacity.free.copy()
    leaving = snapshot.running[ends <= window.start] if window.start > now else snapshot.running[:0]
    free.add_rows(leaving["node"], leaving)
    remaining = free.select_nodes(nodes)
    booked = np.maximum(window.gpus_per_node - _allocated_gpus(window, still_there, snapshot), 0)
    remaining.gpus[:, node_table.is_whole] = _subtract_devices(remaining.gpus[:, node_table.is_whole], booked)
    fraction = booked / np.maximum(node_table.cards[nodes], 1)
    remaining.cpus = remaining.cpus - np.ceil(node_table.cpus[nodes] * fraction).astype(np.int64)
    remaining.memory_mib = remaining.memory_mib - np.ceil(node_table.memory_mib[nodes] * fraction).astype(np.int64)
    remaining.running_count = remaining.running_count + (booked > 0)  # blocks exclusive jobs of other projects
    return BookedCapacity(at, nodes, remaining, window.project, booked)


def _allocated_gpus(window: ReservationWindow, running: Array, snapshot: Snapshot) -> Array:
    """Allocated GPUs of its project on each of its nodes, without MIG slices."""
    is_own = np.array([project == window.project for project, _ in snapshot.share_tree.leaves], bool)
    rows = running[is_own[running["leaf"]]] if len(is_own) else running[:0]
    rows = rows[np.append(snapshot.node_table.is_whole, False)[rows["kind"]]]  # kind -1: without devices
    per_node = np.bincount(rows["node"], rows["devices"], len(snapshot.node_table.nodes))
    return np.asarray(per_node[window.nodes], np.int64)


def _subtract_devices(gpus: Array, booked: Array) -> Array:
    """Subtract so many devices from each node, from the most frequent kind first."""
    remaining = gpus.copy()
    for index, count in enumerate(booked):
        for _ in range(int(count)):
            if remaining.shape[1] and remaining[index].max() > 0:
                remaining[index, int(remaining[index].argmax())] -= 1
    return remaining


@dataclass(frozen=True, slots=True)
class ReservationAccess:
    """Whether the reservation of a job is active, or when it will be."""

    is_open: bool = True
    opens_at: datetime | None = None  # None: it is active, or has ended for good


def find_reservation_access(job: Job, reservations: Iterable[Reservation], now: datetime) -> ReservationAccess:
    """A job without a reservation always has access."""
    name = job.placement.reservation
    if name is None:
        return ReservationAccess()
    reservation = next(
        (candidate for candidate in reservations if candidate.name == name and candidate.project == job.project),
        None,
    )
    times = next(iter(reservation.occurrences(now)), None) if reservation else None
    if times is None:
        return ReservationAccess(is_open=False)
    return ReservationAccess() if times[0] <= now else ReservationAccess(is_open=False, opens_at=times[0])


def explain_closed_reservation(job: Job, access: ReservationAccess) -> str | None:
    """Why the job is not in the queue yet; None: it is."""
    if access.is_open:
        return None
    name = job.placement.reservation
    if access.opens_at is None:
        return f"its reservation {name} has ended or was deleted; cancel it and submit it without --reservation"
    return f"waits for the reservation {name}, which begins at {access.opens_at:%Y-%m-%d %H:%M} UTC"


def with_reservation_label(placement: PlacementRequest) -> PlacementRequest:
    """The placement with the internal label of its reservation, if it names one."""
    if placement.reservation is None:
        return placement
    return replace(placement, labels=(*placement.labels, _label(placement.reservation)))


def active_reservation_names(reservations: Iterable[Reservation], now: datetime) -> frozenset[str]:
    return frozenset(
        reservation.name
        for reservation in reservations
        if reservation.project is not None and reservation.is_active_at(now)
    )


def add_reservation_labels(
    nodes: tuple[Node, ...], reservations: Sequence[Reservation], names: Collection[str]
) -> tuple[Node, ...]:
    """The nodes with the internal labels of their active reservations."""
    labels: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for reservation in reservations:
        for node in reservation.nodes if reservation.name in names else ():
            labels[node][_label(reservation.name)] = ""
    return tuple(
        replace(node, labels={**node.labels, **labels[node.name]}) if node.name in labels else node
        for node in nodes
    )


def _label(name: str) -> str:
    """Contains a space, which labels from users cannot."""
    return f"reservation {name}"
