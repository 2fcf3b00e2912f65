"""Slurm's partitions, and what a job of ours would find there: pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from heliostat.engines.slurm.parse import SlurmNode, expand_hosts
from heliostat.engines.slurm.reservations import SlurmReservation
from heliostat.engines.slurm.terms import Place, Terms
from heliostat.models import Node

_PAIR = re.compile(r"(\w+)=(\S*)")
_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", re.ASCII)
_CLOSED = ("INACTIVE", "DRAIN")  # takes no new jobs; one that is DOWN lets them wait


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    nodes: frozenset[str]
    is_default: bool = False
    is_open: bool = True
    max_seconds: int | None = None  # that a job may run; None: as long as it likes
    max_nodes: int | None = None  # that a job may have


@dataclass(frozen=True)
class Picture:
    """What is known of Slurm's side, as of a few seconds ago."""

    partitions: Mapping[str, Partition] = field(default_factory=dict)
    nodes: tuple[SlurmNode, ...] = ()
    reservations: tuple[SlurmReservation, ...] | None = None  # None: not known

    @property
    def default(self) -> str | None:
        """The partition of jobs that name none."""
        return next((name for name, one in self.partitions.items() if one.is_default), None)

    @property
    def gpu_types(self) -> set[str]:
        return {kind for node in self.nodes for kind, _ in node.gpus}

    @cached_property
    def features(self) -> dict[str, frozenset[str]]:
        """By node."""
        return {node.name: frozenset(node.features) for node in self.nodes}

    @property
    def longest_seconds(self) -> dict[str, int]:
        """By partition, where there is a limit; by "" that of the default one."""
        limits = {name: one.max_seconds for name, one in self.partitions.items() if one.max_seconds is not None}
        return limits | ({"": limits[self.default]} if self.default in limits else {})


def partitions_of(text: str) -> dict[str, Partition]:
    """Of `scontrol --oneliner show partition`: words of the admins of Slurm."""
    found = (_partition(dict(_PAIR.findall(line))) for line in text.splitlines())
    return {one.name: one for one in found if one is not None}


def in_our_words(nodes: Sequence[Node], picture: Picture, terms: Terms) -> list[Node]:
    """With the labels, data classes and types of GPUs that stand for what Slurm has there."""
    types = {theirs: ours for ours, theirs in terms.our_gpu_types.items()}
    return [
        replace(
            node,
            devices=tuple(replace(one, type=types.get(one.type, one.type)) for one in node.devices),
            labels={**node.labels, **_labels(node.name, picture, terms)},
            min_data_class=min(classes, default=0),
            data_class=max(classes, default=0),
        )
        for node in nodes
        for classes in [_classes(node.name, picture, terms)]
    ]


def is_at(node: str, place: Place, picture: Picture) -> bool:
    """Whether a node is in one of its partitions and has its features."""
    if not picture.features.get(node, frozenset()) >= set(place.features):
        return False
    if place.partition is None:
        return True
    names = place.partition.split(",")
    return any(node in picture.partitions[name].nodes for name in names if name in picture.partitions)


def _partition(words: Mapping[str, str]) -> Partition | None:
    name = words.get("PartitionName")
    if not name:
        return None
    nodes = words.get("Nodes", "")
    return Partition(
        name=name,
        nodes=frozenset(expand_hosts("" if nodes == "(null)" else nodes)),
        is_default=words.get("Default") == "YES",
        is_open=words.get("State") not in _CLOSED,
        max_seconds=_seconds(words.get("MaxTime", "")),
        max_nodes=_number(words.get("MaxNodes", "")),
    )


def _seconds(text: str) -> int | None:
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


def _labels(node: str, picture: Picture, terms: Terms) -> dict[str, str]:
    there = (label for label, place in terms.labels.items() if is_at(node, place, picture))
    return {name: value for name, _, value in (label.partition("=") for label in there)}


def _classes(node: str, picture: Picture, terms: Terms) -> list[int]:
    """Which classes of data are sent there: class 0 too, where jobs go that nothing sends elsewhere."""
    places = {0: Place(terms.partition or picture.default), **terms.data_classes}
    return [number for number, place in places.items() if is_at(node, place, picture)]
