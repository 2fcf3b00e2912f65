"""Which shapes have no room at all: asked of all that wait at once, before any of them is tried."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from heliostat.scheduling.columns import Array
from heliostat.scheduling.free import Free
from heliostat.scheduling.machines import Machines, Suitable
from heliostat.scheduling.shapes import Shape

_AT_ONCE = 2_000_000  # pairs of shape and node: more are looked at in pieces


def have_room(shapes: Sequence[Shape], machines: Machines, free: Free) -> Array:
    """By shape: whether some node that it may use could take one of its tasks now."""
    found = np.zeros(len(shapes), bool)
    alike: defaultdict[tuple[int, bool], list[int]] = defaultdict(list)
    for place, shape in enumerate(shapes):
        alike[machines.suitable(shape).group, shape.placement.exclusive].append(place)
    for (_, exclusive), places in alike.items():
        suitable = machines.suitable(shapes[places[0]])
        found[places] = _fit([shapes[place] for place in places], suitable, free, exclusive)
    return found


def _fit(shapes: list[Shape], suitable: Suitable, free: Free, exclusive: bool) -> Array:
    """The same for shapes that may use the same nodes and kinds of device."""
    nodes = suitable.open_nodes & (free.holders == 0) if exclusive else suitable.open_nodes
    cpus, memory, gpus = free.cpus[nodes], free.memory[nodes], free.gpus[nodes]
    needs = np.array([(s.resources.cpus, s.resources.memory_mib, s.resources.devices) for s in shapes], np.int64)
    found = np.zeros(len(shapes), bool)
    step = max(1, _AT_ONCE // max(len(cpus), 1))
    for first in range(0, len(shapes), step):
        some = needs[first : first + step, :, None]
        enough = (cpus >= some[:, 0]) & (memory >= some[:, 1])
        for kind in suitable.kinds:
            fits = enough if kind < 0 else enough & (gpus[:, kind] >= some[:, 2])
            found[first : first + step] |= fits.any(axis=1)
    return found
