"""Smaller or different requests that may start earlier than the one that was made."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from heliostat.models import Job, Node, Resources, TaskLayout
from heliostat.models.jobs import ALWAYS_PREEMPTIBLE_CLASSES
from heliostat.scheduling.feasibility import format_cpus, format_gpus, format_memory, format_tasks

_SHORTER = (7 * 86400, 2 * 86400, 86400, 12 * 3600, 8 * 3600, 4 * 3600, 2 * 3600, 3600, 1800, 600)


@dataclass(frozen=True, slots=True)
class RequestVariation:
    """Another way to ask."""

    description: str  # "2 GPUs"
    change: dict[str, object]  # fields of a submission
    job: Job


def list_variations(job: Job, nodes: Iterable[Node]) -> Iterator[RequestVariation]:
    """Those that make sense for it; whether any node could run them is not looked at."""
    yield from _fewer_gpus(job)
    wanted, placement = job.resources, job.placement
    if wanted.gpus and wanted.gpu_type is not None:
        yield _any_type(job, nodes)
    if wanted.gpus and wanted.gpu_memory_mib is not None:
        yield RequestVariation(
            "any GPU memory", {"gpu_memory": None}, _asking(job, replace(wanted, gpu_memory_mib=None))
        )
    if not wanted.gpus and (wanted.cpus > 1 or wanted.memory_mib > 1024):
        half = replace(wanted, cpus=math.ceil(wanted.cpus / 2), memory_mib=math.ceil(wanted.memory_mib / 2))
        change: dict[str, object] = {"cpus": half.cpus, "memory": half.memory_mib}
        yield RequestVariation("half the cpus and memory", change, _asking(job, half))
    if placement.tasks > 1:
        tasks = placement.tasks // 2
        fewer = replace(job, placement=replace(placement, tasks=tasks))
        yield RequestVariation(format_tasks(tasks), {"tasks": tasks}, fewer)
        if placement.layout is TaskLayout.SPREAD:
            packed = replace(job, placement=replace(placement, layout=TaskLayout.PACK))
            yield RequestVariation("layout pack", {"layout": "pack"}, packed)
    if placement.exclusive:
        shared = replace(job, placement=replace(placement, exclusive=False))
        yield RequestVariation("not exclusive", {"exclusive": False}, shared)
    yield from _other_classes(job)


def list_shorter_variations(job: Job, assumed_limit_seconds: float) -> Iterator[RequestVariation]:
    """The same for less time, the longest first."""
    limit = job.time_limit_seconds or assumed_limit_seconds
    for seconds in _SHORTER:
        if seconds < limit:
            brief = replace(job, time_limit_seconds=seconds, overtime=False)
            yield RequestVariation(f"at most {_duration(seconds)}", {"time_limit": seconds}, brief)


def _other_classes(job: Job) -> Iterator[RequestVariation]:
    """Everybody may use any; those above normal are for people who know that they need them, and are not offered
    to others."""
    by_wish = job.preemptible and job.priority_class not in ALWAYS_PREEMPTIBLE_CLASSES
    for name in ("scavenger", "normal"):
        if name != job.priority_class:
            other = replace(job, priority_class=name, preemptible=by_wish or name in ALWAYS_PREEMPTIBLE_CLASSES)
            yield RequestVariation(f"class {name}", {"priority_class": name}, other)


def _fewer_gpus(job: Job) -> Iterator[RequestVariation]:
    """With as much less of cpus and memory."""
    wanted = job.resources
    for gpus in dict.fromkeys((wanted.gpus // 2, 1)):
        if 1 <= gpus < wanted.gpus:
            part = gpus / wanted.gpus
            fewer = Resources(
                math.ceil(wanted.cpus * part),
                math.ceil(wanted.memory_mib * part),
                int(gpus),
                wanted.gpu_type,
                wanted.gpu_memory_mib,
            )
            words = format_gpus(fewer.gpus, fewer.gpu_type, fewer.gpu_memory_mib)
            change: dict[str, object] = {"gpus": fewer.gpus, "cpus": fewer.cpus, "memory": fewer.memory_mib}
            yield RequestVariation(words, change, _asking(job, fewer))


def _any_type(job: Job, nodes: Iterable[Node]) -> RequestVariation:
    """With no more cpus and memory than go with so many GPUs of any node: what one has, another may lack."""
    wanted = replace(job.resources, gpu_type=None)
    change: dict[str, object] = {"gpu_type": None}
    parts = [(node, wanted.gpus / len(node.devices)) for node in nodes if len(node.devices) >= wanted.gpus]
    cpus = min([wanted.cpus, *(max(1, int(node.cpus * part)) for node, part in parts)])
    memory = min([wanted.memory_mib, *(int(node.memory_mib * part) for node, part in parts)])
    if (cpus, memory) == (wanted.cpus, wanted.memory_mib):
        return RequestVariation("any GPU type", change, _asking(job, wanted))
    words = f"any GPU type with {format_cpus(cpus)}, {format_memory(memory)}"
    change |= {"cpus": cpus, "memory": memory}
    return RequestVariation(words, change, _asking(job, replace(wanted, cpus=cpus, memory_mib=memory)))


def _asking(job: Job, wanted: Resources) -> Job:
    return replace(job, resources=wanted)


def _duration(seconds: int) -> str:
    for size, unit in ((86400, "d"), (3600, "h")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds // 60}m"
