"""The times for which nodes or devices are set aside: for a project, or for nobody while they are maintained."""

import math
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from heliostat.scheduling.columns import Array
from heliostat.scheduling.free import Free
from heliostat.scheduling.rooms import Keep, Rooms
from heliostat.scheduling.snapshot import Snapshot

_ALWAYS = -math.inf


@dataclass(frozen=True, slots=True)
class Window:
    """One time for which a reservation holds."""

    start: float
    end: float
    nodes: Array
    project: str | None
    gpus_per_node: int | None

    def concerns(self, project: str) -> bool:
        return self.project is None or self.project != project


def windows_of(snapshot: Snapshot, now: datetime) -> list[Window]:
    """Those that are not over, in order of time."""
    index = snapshot.machines.index
    found = []
    for reservation in snapshot.reservations:
        nodes = np.array([index[name] for name in reservation.nodes if name in index], np.int64)
        if not len(nodes):
            continue
        for starts_at, ends_at in reservation.occurrences(now):
            start, end = starts_at.timestamp(), ends_at.timestamp()
            found.append(Window(start, end, nodes, reservation.project, reservation.gpus_per_node))
    return sorted(found, key=lambda window: window.start)


def keep_for_window(window: Window, snapshot: Snapshot, rooms: Rooms, ends: Array, now: float) -> Keep:
    """What others find on its nodes from its start on. Those whom it is for may hold part of it already."""
    machines, nodes = snapshot.machines, window.nodes
    at = _ALWAYS if window.start <= now else window.start
    if window.gpus_per_node is None:
        nobody = np.zeros(len(nodes), np.int64)
        nothing = Free(nobody, nobody.copy(), np.zeros((len(nodes), len(machines.kinds)), np.int64), nobody.copy())
        return Keep(at, nodes, nothing, window.project)
    still_there = snapshot.running[ends > window.start] if window.start > now else snapshot.running
    free = rooms.free.copy()
    leaving = snapshot.running[ends <= window.start] if window.start > now else snapshot.running[:0]
    free.add(leaving["node"], leaving)
    left = free.of(nodes)
    kept = np.maximum(window.gpus_per_node - _held_by(window, still_there, snapshot), 0)
    left.gpus = _less(left.gpus, kept)
    part = kept / np.maximum(machines.gpus[nodes].sum(axis=1), 1)
    left.cpus = left.cpus - np.ceil(machines.cpus[nodes] * part).astype(np.int64)
    left.memory = left.memory - np.ceil(machines.memory[nodes] * part).astype(np.int64)
    left.holders = left.holders + (kept > 0)  # nobody else is alone there
    return Keep(at, nodes, left, window.project, kept)


def _held_by(window: Window, running: Array, snapshot: Snapshot) -> Array:
    """GPUs that jobs of its project hold on each of its nodes."""
    mine = np.array([project == window.project for project, _ in snapshot.tree.leaves], bool)
    rows = running[mine[running["leaf"]]] if len(mine) else running[:0]
    per_node = np.bincount(rows["node"], rows["devices"], len(snapshot.machines.nodes))
    return np.asarray(per_node[window.nodes], np.int64)


def _less(gpus: Array, kept: Array) -> Array:
    """Take so many devices away from each node, of whatever kind there is most."""
    left = gpus.copy()
    for place, count in enumerate(kept):
        for _ in range(int(count)):
            if left.shape[1] and left[place].max() > 0:
                left[place, int(left[place].argmax())] -= 1
    return left
