"""Layered layout of a dependency graph, from left to right. Pure functions; at most a few hundred boxes.

Steps without dependencies are on the left; every other step is right of its dependencies. Large graphs are
condensed: a layer with too many steps gets one box for the remaining ones, and excess layers are merged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MAX_BOXES_PER_LAYER = 12
MAX_LAYERS = 40
BOX_WIDTH, BOX_HEIGHT = 168, 52
HORIZONTAL_GAP, VERTICAL_GAP, MARGIN = 56, 18, 12
_SWEEPS = 4


@dataclass(frozen=True, slots=True)
class StepBox:
    """Position of a box with one or more steps."""

    step_names: tuple[str, ...]
    layer: int
    x: int
    y: int
    width: int = BOX_WIDTH
    height: int = BOX_HEIGHT


@dataclass(frozen=True, slots=True)
class GraphLayout:
    boxes: tuple[StepBox, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()  # pairs of box indexes
    width: int = 0
    height: int = 0


@dataclass(slots=True)
class _Group:
    """Steps that share a box, during the layout."""

    names: list[str]
    layer: int
    before: set[int] = field(default_factory=set)
    after: set[int] = field(default_factory=set)


def layout_graph(needs: Mapping[str, Sequence[str]]) -> GraphLayout:
    """`needs`: the dependencies of each step, without cycles. Deterministic."""
    layers = _merge_layers(_layers(needs))
    groups = _group_steps(layers)
    _link(groups, needs)
    columns = _order_layers(groups)
    tallest = max((len(column) for column in columns), default=0)
    boxes: dict[int, StepBox] = {}
    for across, column in enumerate(columns):
        top = MARGIN + (tallest - len(column)) * (BOX_HEIGHT + VERTICAL_GAP) // 2
        for down, place in enumerate(column):
            x, y = MARGIN + across * (BOX_WIDTH + HORIZONTAL_GAP), top + down * (BOX_HEIGHT + VERTICAL_GAP)
            boxes[place] = StepBox(tuple(groups[place].names), across, x, y)
    edges = [(parent, place) for place, group in enumerate(groups) for parent in sorted(group.before)]
    width = 2 * MARGIN + len(columns) * (BOX_WIDTH + HORIZONTAL_GAP) - HORIZONTAL_GAP
    height = 2 * MARGIN + tallest * (BOX_HEIGHT + VERTICAL_GAP) - VERTICAL_GAP
    return GraphLayout(
        tuple(boxes[place] for place in range(len(groups))), tuple(edges), max(0, width), max(0, height)
    )


def _layers(needs: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Each step in the first layer after its dependencies."""
    children: dict[str, list[str]] = {name: [] for name in needs}
    left = dict.fromkeys(needs, 0)
    for name, parents in needs.items():
        for parent in {one for one in parents if one in needs}:
            children[parent].append(name)
            left[name] += 1
    layers: list[list[str]] = []
    ready = [name for name in needs if not left[name]]
    while ready:
        layers.append(ready)
        following: list[str] = []
        for name in ready:
            for child in children[name]:
                left[child] -= 1
                if not left[child]:
                    following.append(child)
        ready = following
    return layers


def _merge_layers(layers: Sequence[list[str]]) -> list[tuple[list[str], bool]]:
    """Merge excess layers; each with whether it was merged."""
    if len(layers) <= MAX_LAYERS:
        return [(layer, False) for layer in layers]
    size = -(-len(layers) // MAX_LAYERS)
    bands = [layers[start : start + size] for start in range(0, len(layers), size)]
    return [([name for layer in band for name in layer], len(band) > 1) for band in bands]


def _group_steps(layers: Sequence[tuple[list[str], bool]]) -> list[_Group]:
    groups: list[_Group] = []
    for place, (names, is_band) in enumerate(layers):
        alone = [] if is_band else names if len(names) <= MAX_BOXES_PER_LAYER else names[: MAX_BOXES_PER_LAYER - 1]
        groups += [_Group([name], place) for name in alone]
        if rest := names[len(alone) :]:
            groups.append(_Group(list(rest), place))
    return groups


def _link(groups: Sequence[_Group], needs: Mapping[str, Sequence[str]]) -> None:
    where = {name: place for place, group in enumerate(groups) for name in group.names}
    for name, parents in needs.items():
        for parent in parents:
            if parent in where and where[parent] != where[name]:
                groups[where[name]].before.add(where[parent])
                groups[where[parent]].after.add(where[name])


def _order_layers(groups: Sequence[_Group]) -> list[list[int]]:
    """Order each layer to shorten edges: by the mean position of predecessors, then of successors."""
    columns: dict[int, list[int]] = {}
    for place, group in enumerate(groups):
        columns.setdefault(group.layer, []).append(place)
    for sweep in range(_SWEEPS):
        goes_right = sweep % 2 == 0
        height = {place: down for column in columns.values() for down, place in enumerate(column)}
        for layer in sorted(columns, reverse=not goes_right):
            column = columns[layer]
            column.sort(key=lambda place: _mean_position(groups[place], height, goes_right, height[place]))
            height |= {place: down for down, place in enumerate(column)}
    return [columns[layer] for layer in sorted(columns)]


def _mean_position(group: _Group, height: Mapping[int, int], goes_right: bool, own: int) -> float:
    others = group.before if goes_right else group.after
    return sum(height[one] for one in others) / len(others) if others else float(own)
