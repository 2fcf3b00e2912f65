"""A request, or a job made of one, as the body of the API that asks for it: only what is not the default."""

from collections.abc import Iterator, Mapping
from typing import Any

from heliostat.models import ArrayRange, Job, JobRequest, Parent, Rule
from heliostat.models.dependencies import begin_text
from heliostat.models.environments import Software
from heliostat.models.retries import DEFAULT_CAUSES
from heliostat.services.sessions.verbs import TOKEN

Body = dict[str, Any]

_MIB_PER_UNIT = (("T", 2**20), ("G", 2**10))
_SECONDS_PER_UNIT = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_SHELL = ("/bin/sh", "-c")


def body_of(request: JobRequest) -> Body:
    """Reading it gives the request again."""
    spec, place = request.spec, request.placement
    given = {
        "command": _command(spec.command, spec.script),
        "gpus": number(request.gpus) or None,
        "gpu_type": request.gpu_type,
        "time_limit": _unless_none(request.time_limit_seconds, duration_text),
        "name": request.name,
        "project": request.project,
        "cpus": request.cpus,
        "memory": _unless_none(request.memory_mib, memory_text),
        "gpu_memory": _unless_none(request.gpu_memory_mib, memory_text),
        "tasks": place.tasks if place.tasks != 1 else None,
        "layout": place.layout.value if place.layout != "pack" else None,
        "array": _unless_none(request.array, array_text),
        "labels": list(place.labels) or None,
        "reservation": place.reservation,
        "exclusive": place.exclusive or None,
        "priority_class": request.priority_class if request.priority_class != "normal" else None,
        "priority": request.priority or None,
        "max_retries": request.max_retries or None,
        "retry_on": list(request.retry.on) if request.retry.on != DEFAULT_CAUSES else None,
        "retry_delay": _unless_none(request.retry.delay_seconds or None, duration_text),
        "notify": list(request.notify) or None,
        "preemptible": request.preemptible or None,
        "overtime": request.overtime or None,
        "held": request.held or None,
        **_after(request),
        "begin": _unless_none(request.begin, begin_text),
        "workdir": spec.workdir,
        "script": spec.script,
        "env": {name: value for name, value in spec.env.items() if name != TOKEN} or None,
        "preempt_signal": spec.preempt_signal if spec.preempt_signal != "TERM" else None,
        "grace_seconds": number(spec.grace_seconds) if spec.grace_seconds != 10 else None,
        "image": spec.image,
        "runtime": spec.runtime,
        "mounts": [str(mount) for mount in spec.mounts] or None,
        "network": spec.network,
        "upload": spec.upload,
        "template": spec.template,
        "environment": _environment(request.environment),
    }
    return {name: value for name, value in given.items() if value is not None}


def request_of(job: Job) -> JobRequest:
    """That would make the same job again; of an array, the one element."""
    wanted = job.resources
    return JobRequest(
        spec=job.spec,
        name=job.name,
        project=job.project,
        cpus=wanted.cpus,
        memory_mib=wanted.memory_mib,
        gpus=wanted.gpus,
        gpu_type=wanted.gpu_type,
        gpu_memory_mib=wanted.gpu_memory_mib,
        placement=job.placement,
        time_limit_seconds=job.time_limit_seconds,
        priority=job.priority,
        priority_class=job.priority_class,
        preemptible=job.preemptible,
        overtime=job.overtime,
        max_retries=job.max_retries,
        array=None if job.array_index is None else ArrayRange((job.array_index,)),
        after=tuple(Parent(str(one.parent), one.rule) for one in job.after if one.rule in _AFTER),
        begin=None if job.retries else job.begin_at,  # else it is when it was tried again
        environment=job.environment,
        retry=job.retry,
        notify=job.notify,
    )


def memory_text(mib: int) -> str:
    """`16G`, `1500M`."""
    unit, size = next(((unit, size) for unit, size in _MIB_PER_UNIT if mib and mib % size == 0), ("M", 1))
    return f"{mib // size}{unit}"


def duration_text(seconds: float) -> str:
    """`1d12h`, `90s`; what is not whole as a number."""
    left = int(seconds)
    if left != seconds or left <= 0:
        return f"{number(seconds)}"
    parts: list[str] = []
    for unit, size in _SECONDS_PER_UNIT:
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts)


def array_text(array: ArrayRange) -> str:
    """`0-99%8`, `1,3,5-9`."""
    runs = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in _runs(array.indexes))
    return runs if array.limit is None else f"{runs}%{array.limit}"


def number(value: float) -> float:
    """Whole ones without a point."""
    return int(value) if value == int(value) else value


def plain_changes(change: Mapping[str, object]) -> Body:
    """What a what-if changes, as fields of a body; None takes a field away."""
    changed = dict(change)
    for name, words in (("memory", memory_text), ("gpu_memory", memory_text), ("time_limit", duration_text)):
        if isinstance(value := changed.get(name), int):
            changed[name] = words(value)
    return changed


def _after(request: JobRequest) -> Body:
    """By field; numbers as numbers."""
    found: Body = dict.fromkeys(("after", "after_any", "after_failed", "after_each"))
    for parent in request.after:
        name = "after_each" if parent.each else _AFTER[parent.rule]
        found[name] = [*(found[name] or []), parent.reference if parent.job_id is None else parent.job_id]
    return found


def _environment(asked: Software | str | None) -> Body | str | None:
    """Files by the names the API has for them, or a digest."""
    if asked is None or isinstance(asked, str):
        return asked
    texts: Body = {_FILES[name]: text for name, text in asked.files}
    return texts if asked.python is None else {**texts, "python": asked.python}


_FILES = {
    "requirements.txt": "requirements",
    "pyproject.toml": "pyproject",
    "uv.lock": "uv_lock",
    "environment.yml": "conda",
}
_AFTER = {Rule.OK: "after", Rule.ANY: "after_any", Rule.FAILED: "after_failed"}


def _command(words: tuple[str, ...], script: str | None) -> str | list[str] | None:
    if script is None and len(words) == 3 and words[:2] == _SHELL and words[2]:
        return words[2]
    return list(words) or None


def _unless_none(value: Any, words: Any) -> str | None:
    return None if value is None else words(value)


def _runs(indexes: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    first = last = indexes[0]
    for index in indexes[1:]:
        if index != last + 1:
            yield first, last
            first = index
        last = index
    yield first, last
