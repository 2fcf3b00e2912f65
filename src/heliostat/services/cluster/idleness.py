"""How much devices were used lately, by samples. Remembered for some seconds: many pages ask."""

import math
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from weakref import WeakKeyDictionary

from heliostat.models.samples import DEVICE_COLUMNS, USAGE_COLUMNS, node_subject
from heliostat.services.context import Context
from heliostat.store.sample_chunks import Grid, onto_grid
from heliostat.store.samples import SampleStore

LOOK_BACK = timedelta(minutes=10)
_REMEMBERED_SECONDS = 20.0

Means = Sequence[float | None]


def recent_utilisation(context: Context, nodes: Collection[str]) -> Mapping[str, Means]:
    """By node: the mean utilisation in percent of each of its devices; None is not known."""
    memory = _memory_of(context.samples)
    return {name: memory.of(context, name) for name in nodes}


class _Memory:
    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Means]] = {}

    def of(self, context: Context, node: str) -> Means:
        clock = time.monotonic()
        read_at, means = self._known.get(node, (-math.inf, ()))
        if clock - read_at > _REMEMBERED_SECONDS:
            means = _read(context, node)
            self._known[node] = (clock, means)
        return means


_lock = threading.Lock()
_memories: WeakKeyDictionary[SampleStore, _Memory] = WeakKeyDictionary()


def _memory_of(samples: SampleStore) -> _Memory:
    with _lock:
        return _memories.setdefault(samples, _Memory())


def _read(context: Context, node: str) -> Means:
    end = int(context.now().timestamp()) + 1
    seconds = int(LOOK_BACK.total_seconds())
    chunks = context.samples.read(node_subject(node), end - seconds, end)
    if not chunks:
        return ()
    row = onto_grid(chunks, Grid(end - seconds, seconds, 1)).mean[0].tolist()
    first, step = len(USAGE_COLUMNS), len(DEVICE_COLUMNS)
    return tuple(None if math.isnan(value) else value for value in row[first::step])
