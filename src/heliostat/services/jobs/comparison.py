"""Comparison of two jobs. Values of environment variables are never shown, only that they differ."""

import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from heliostat.models import Caller, Job, JobId, User
from heliostat.models.provenance import COMPARISON_SECTIONS, AttemptEnvironment, SourceCode
from heliostat.models.uploads import FileTree
from heliostat.models.workflows import Metric
from heliostat.services.context import Context
from heliostat.services.jobs.metrics import get_metrics_of
from heliostat.services.jobs.reruns import JobWithProvenance, get_job_with_provenance
from heliostat.services.permissions import may_see_env_values

_MAX_FILES = 100
_SET, _UNSET, _OTHER, _HIDDEN = "set", "not set", "another value", "set (not compared)"


@dataclass(frozen=True, slots=True)
class Difference:
    section: str
    field: str
    first: str  # as text; empty: no value
    second: str


@dataclass(frozen=True, slots=True)
class Comparison:
    first: JobId
    second: JobId
    differences: tuple[Difference, ...]

    @property
    def same(self) -> tuple[str, ...]:
        """The sections in which nothing differs."""
        differing = {one.section for one in self.differences}
        return tuple(section for section in COMPARISON_SECTIONS if section not in differing)


def compare_jobs(context: Context, caller: Caller, first: JobId, second: JobId) -> Comparison:
    """The caller must be allowed to inspect both."""
    one, other = get_job_with_provenance(context, caller, first), get_job_with_provenance(context, caller, second)
    metrics = _metric_texts(get_metrics_of(context, one.job)), _metric_texts(get_metrics_of(context, other.job))
    names = dict.fromkeys([*metrics[0], *metrics[1]])
    values = [{f"metric {name}": found.get(name, "") for name in names} for found in metrics]
    differences = (*find_differences(one, other, caller.user), *_differences("result", values[0], values[1]))
    order = list(COMPARISON_SECTIONS).index
    return Comparison(first, second, tuple(sorted(differences, key=lambda found: order(found.section))))


def find_differences(one: JobWithProvenance, other: JobWithProvenance, user: User) -> Iterator[Difference]:
    yield from _differences("request", _request(one.job), _request(other.job))
    # A user who may not see the values must not be able to test guesses with a job of their own.
    may_compare = may_see_env_values(user, one.job) and may_see_env_values(user, other.job)
    yield from _variables(one.job, other.job, may_compare)
    yield from _differences("code", _code(one), _code(other))
    yield from _files(one.code_tree, other.code_tree)
    yield from _differences("machine", _node_environment(one), _node_environment(other))
    yield from _differences("result", _result(one.job), _result(other.job))
    yield from _differences("time", _times(one.job), _times(other.job))


def _differences(section: str, one: dict[str, str], other: dict[str, str]) -> Iterator[Difference]:
    for field, value in one.items():
        if value != other[field]:
            yield Difference(section, field, value, other[field])


def _request(job: Job) -> dict[str, str]:
    spec, resources, placement = job.spec, job.resources, job.placement
    values: dict[str, object] = {
        "command": " ".join(spec.command),
        "script": spec.script,
        "workdir": spec.workdir,
        "project": job.project,
        "user": job.user,
        "gpus": f"{resources.gpus:g}",
        "gpu_type": resources.gpu_type,
        "gpu_memory": resources.gpu_memory_mib,
        "cpus": resources.cpus,
        "memory_mib": resources.memory_mib,
        "tasks": placement.tasks,
        "layout": placement.layout.value,
        "labels": ", ".join(placement.labels),
        "time_limit_seconds": job.time_limit_seconds,
        "priority_class": job.priority_class,
        "array_index": job.array_index,
        "image": spec.image,
        "runtime": spec.runtime,
        "mounts": ", ".join(map(str, spec.mounts)),
        "network": spec.network,
        "template": spec.template,
    }
    return {name: _text(value) for name, value in values.items()}


def _variables(one: Job, other: Job, may_compare: bool) -> Iterator[Difference]:
    first_env, second_env = one.spec.env, other.spec.env
    for name in sorted({*first_env, *second_env}):
        if name not in first_env or name not in second_env:
            values = [_SET if name in env else _UNSET for env in (first_env, second_env)]
            yield Difference("environment", name, *values)
        elif not may_compare:
            yield Difference("environment", name, _HIDDEN, _HIDDEN)
        elif not hmac.compare_digest(first_env[name].encode(), second_env[name].encode()):
            yield Difference("environment", name, _SET, _OTHER)


def _code(source: JobWithProvenance) -> dict[str, str]:
    code = source.provenance.code or SourceCode()
    return {
        "upload": _text(source.job.spec.upload)[:12],
        "commit": _text(code.commit),
        "branch": _text(code.branch),
        "remote": _text(code.remote),
        "folder": _text(code.folder),
        "uncommitted": code.diff,
        "untracked": "\n".join(code.untracked),
    }


def _files(one: FileTree | None, other: FileTree | None) -> Iterator[Difference]:
    if one is None or other is None or one == other:
        return
    before, after = ({file.path: file for file in tree.files} for tree in (one, other))
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    for path in changed[:_MAX_FILES]:
        values = [
            f"{by[path].size_bytes} bytes, {by[path].digest[:8]}" if path in by else "" for by in (before, after)
        ]
        yield Difference("code", path, *values)
    if len(changed) > _MAX_FILES:
        more = f"{len(changed) - _MAX_FILES} more files"
        yield Difference("code", "files", more, more)


def _node_environment(source: JobWithProvenance) -> dict[str, str]:
    environment = source.provenance.latest_environment or AttemptEnvironment(())
    return {
        "nodes": ", ".join(environment.nodes),
        "gpus": ", ".join(environment.gpus),
        "driver": _text(environment.driver),
        "image_digest": _text(environment.image_digest),
        "environment": _text(environment.environment),
        "datasets": ", ".join(environment.datasets),
        "heliostat": environment.heliostat,
    }


def _result(job: Job) -> dict[str, str]:
    return {"state": job.state.value, "exit_code": _text(job.exit_code), "reason": _text(job.reason)}


def _metric_texts(metrics: Mapping[str, Metric]) -> dict[str, str]:
    return {name: f"{metric.value:g}" for name, metric in metrics.items()}


def _times(job: Job) -> dict[str, str]:
    return {
        "waited_seconds": f"{job.waited_seconds:.0f}",
        "ran_seconds": _seconds(job.started_at, job.ended_at),
        "attempts": str(job.attempt),
    }


def _seconds(start: datetime | None, end: datetime | None) -> str:
    return "" if start is None or end is None else f"{(end - start).total_seconds():.1f}"


def _text(value: object) -> str:
    return "" if value is None else str(value)
