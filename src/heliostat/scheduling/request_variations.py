"""Variations of a job request that may start earlier: fewer GPUs, any type, less time, another class."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from heliostat.models import Job, Node, Resources, TaskLayout, count_cards
from heliostat.models.amounts import format_count, format_size
from heliostat.models.gpu_types import is_slice
from heliostat.models.jobs import ALWAYS_PREEMPTIBLE_CLASSES
from heliostat.scheduling.feasibility import format_gpus, matching_devices

_SHORTER = (7 * 86400, 2 * 86400, 86400, 12 * 3600, 8 * 3600, 4 * 3600, 2 * 3600, 3600, 1800, 600)


@dataclass(frozen=True, slots=True)
class RequestVariation:
    description: str  # "2 GPUs"
    change: dict[str, object]  # fields of a submission
    job: Job


def list_variations(job: Job, nodes: Iterable[Node]) -> Iterator[RequestVariation]:
    """Variations that make sense for this job; some may not be feasible on these nodes."""
    yield from _fewer_gpus(job)
    requested, placement = job.resources, job.placement
    if requested.gpus and requested.gpu_type is not None and not is_slice(requested.gpu_type):
        yield _any_type(job, nodes)
    if requested.gpus and requested.gpu_memory_mib is not None:
        yield RequestVariation(
            "any GPU memory", {"gpu_memory": None}, _with_resources(job, replace(requested, gpu_memory_mib=None))
        )
    if not requested.gpus and (requested.cpus > 1 or requested.memory_mib > 1024):
        half = replace(
            requested, cpus=math.ceil(requested.cpus / 2), memory_mib=math.ceil(requested.memory_mib / 2)
        )
        change: dict[str, object] = {"cpus": half.cpus, "memory": half.memory_mib}
        yield RequestVariation("half the CPUs and memory", change, _with_resources(job, half))
    if placement.tasks > 1:
        tasks = placement.tasks // 2
        fewer = replace(job, placement=replace(placement, tasks=tasks))
        yield RequestVariation(format_count(tasks, "task"), {"tasks": tasks}, fewer)
        if placement.layout is TaskLayout.SPREAD:
            packed = replace(job, placement=replace(placement, layout=TaskLayout.PACK))
            yield RequestVariation("layout pack", {"layout": "pack"}, packed)
    if placement.exclusive:
        shared = replace(job, placement=replace(placement, exclusive=False))
        yield RequestVariation("not exclusive", {"exclusive": False}, shared)
    yield from _other_classes(job)


def list_shorter_variations(job: Job, assumed_limit_seconds: float) -> Iterator[RequestVariation]:
    """The same request with a shorter time limit, the longest first."""
    limit = job.time_limit_seconds or assumed_limit_seconds
    for seconds in _SHORTER:
        if seconds < limit:
            shorter = replace(job, time_limit_seconds=seconds, overtime=False)
            yield RequestVariation(f"at most {_duration(seconds)}", {"time_limit": seconds}, shorter)


def _other_classes(job: Job) -> Iterator[RequestVariation]:
    """Every user may use any class; classes above normal are never suggested."""
    was_requested = job.preemptible and job.priority_class not in ALWAYS_PREEMPTIBLE_CLASSES
    for name in ("scavenger", "normal"):
        if name != job.priority_class:
            other = replace(
                job, priority_class=name, preemptible=was_requested or name in ALWAYS_PREEMPTIBLE_CLASSES
            )
            yield RequestVariation(f"class {name}", {"priority_class": name}, other)


def _fewer_gpus(job: Job) -> Iterator[RequestVariation]:
    """With cpus and memory reduced in proportion."""
    requested = job.resources
    for gpus in dict.fromkeys((requested.gpus // 2, 1)):
        if 1 <= gpus < requested.gpus:
            fraction = gpus / requested.gpus
            fewer = Resources(
                math.ceil(requested.cpus * fraction),
                math.ceil(requested.memory_mib * fraction),
                int(gpus),
                requested.gpu_type,
                requested.gpu_memory_mib,
            )
            description = format_gpus(fewer.gpus, fewer.gpu_type, fewer.gpu_memory_mib)
            change: dict[str, object] = {"gpus": fewer.gpus, "cpus": fewer.cpus, "memory": fewer.memory_mib}
            yield RequestVariation(description, change, _with_resources(job, fewer))


def _any_type(job: Job, nodes: Iterable[Node]) -> RequestVariation:
    """With cpus and memory reduced to the proportional amount of the node with the least per GPU."""
    requested = replace(job.resources, gpu_type=None)
    change: dict[str, object] = {"gpu_type": None}
    fractions = [
        (node, requested.gpus / count_cards(node.devices))
        for node in nodes
        if len(matching_devices(node, None)) >= requested.gpus
    ]
    cpus = min([requested.cpus, *(max(1, int(node.cpus * fraction)) for node, fraction in fractions)])
    memory = min([requested.memory_mib, *(int(node.memory_mib * fraction) for node, fraction in fractions)])
    if (cpus, memory) == (requested.cpus, requested.memory_mib):
        return RequestVariation("any GPU type", change, _with_resources(job, requested))
    description = f"any GPU type with {format_count(cpus, 'CPU')} and {format_size(memory)}"
    change |= {"cpus": cpus, "memory": memory}
    return RequestVariation(
        description, change, _with_resources(job, replace(requested, cpus=cpus, memory_mib=memory))
    )


def _with_resources(job: Job, requested: Resources) -> Job:
    return replace(job, resources=requested)


def _duration(seconds: int) -> str:
    for size, unit in ((86400, "d"), (3600, "h")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds // 60}m"
