"""The figures as people and programs read them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliostat.simulation.comparison import PolicyResult, ReplayScenario
from heliostat.simulation.metrics import ReplayMetrics
from heliostat.simulation.traces.csv_format import NOT_SELECTED
from heliostat.simulation.traces.trace import Trace

_UNITS = ((86400.0, "d", 3600.0, "h"), (3600.0, "h", 60.0, "m"), (60.0, "m", 1.0, "s"))


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One figure of every policy."""

    title: str
    format_value: Callable[[ReplayMetrics], str]


def build_summary(trace: Trace, scenario: ReplayScenario, outcomes: Sequence[PolicyResult]) -> dict[str, Any]:
    workload, cluster = scenario.workload, scenario.cluster
    return {
        "trace": {
            "name": trace.name,
            "jobs": len(trace.jobs),
            "skipped": dict(trace.skipped),
            "replayed": len(workload.jobs),
            "impossible": dict(workload.impossible),
        },
        "cluster": {
            "nodes": cluster.nodes_text,
            "count": len(cluster.nodes),
            "gpus": cluster.gpus,
            "offered_load": compute_offered_load(scenario),
        },
        "policies": {
            one.policy: one.metrics.as_dict() | {"replay_seconds": one.replay_seconds} for one in outcomes
        },
    }


def describe_scenario(trace: Trace, scenario: ReplayScenario) -> Mapping[str, str]:
    """What was replayed, in words."""
    workload = scenario.workload
    return {
        "trace": trace.name,
        "jobs": _part_of(len(workload.jobs), len(trace.jobs)),
        "nodes": scenario.cluster.nodes_text,
        "offered load": f"{compute_offered_load(scenario):.2f}",
    }


def list_warnings(trace: Trace, scenario: ReplayScenario, outcomes: Sequence[PolicyResult]) -> list[str]:
    """Jobs that are not in the figures, and why."""
    lines = {why: count for why, count in trace.skipped.items() if why != NOT_SELECTED}
    said = [f"{format_count(count, 'line gives', 'lines give')} no job: {why}." for why, count in lines.items()]
    said += [
        f"{format_count(count, 'job is', 'jobs are')} impossible here: {why}."
        for why, count in scenario.workload.impossible.items()
    ]
    said += [
        f"{format_count(one.metrics.unstarted, 'job')} never started under {one.policy}."
        for one in outcomes
        if one.metrics.unstarted
    ]
    return said


def format_count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _part_of(some: int, everything: int) -> str:
    return f"{some:,}" if some == everything else f"{some:,} of {everything:,}"


def compute_offered_load(scenario: ReplayScenario) -> float:
    """What the jobs ask for while they arrive, as a part of what the cluster has in that time."""
    workload, unit = scenario.workload, scenario.cluster.usage_unit
    asked = sum(
        getattr(job.resources, unit) * job.placement.tasks * seconds
        for job, seconds in zip(workload.jobs, workload.run_seconds, strict=True)
    )
    span = workload.submitted_seconds[-1] if workload.jobs else 0.0
    return float(asked / (scenario.cluster.size * span)) if span > 0 else 0.0


def format_short_duration(seconds: float) -> str:
    """`42s`, `3m05s`, `2h07m`, `5d03h`."""
    total = round(seconds)
    for size, unit, below, rest in _UNITS:
        if total >= size:
            return f"{int(total // size)}{unit}{int(total % size // below):02d}{rest}"
    return f"{total}s"


def _percent(part: float) -> str:
    return f"{part:.1%}"


METRIC_ROWS: tuple[MetricRow, ...] = (
    MetricRow("wait, mean", lambda f: format_short_duration(f.wait.mean)),
    MetricRow("wait, p50", lambda f: format_short_duration(f.wait.p50)),
    MetricRow("wait, p90", lambda f: format_short_duration(f.wait.p90)),
    MetricRow("wait, p99", lambda f: format_short_duration(f.wait.p99)),
    MetricRow("completion, mean", lambda f: format_short_duration(f.completion.mean)),
    MetricRow("completion, p50", lambda f: format_short_duration(f.completion.p50)),
    MetricRow("completion, p99", lambda f: format_short_duration(f.completion.p99)),
    MetricRow("slowdown, mean", lambda f: f"{f.slowdown.mean:,.1f}"),
    MetricRow("slowdown, p99", lambda f: f"{f.slowdown.p99:,.1f}"),
    MetricRow("utilisation", lambda f: _percent(f.utilisation)),
    MetricRow("utilisation while jobs arrive", lambda f: _percent(f.utilisation_while_arriving)),
    MetricRow("fairness of projects (Jain)", lambda f: f"{f.projects.jain:.3f}"),
    MetricRow("fairness of users (Jain)", lambda f: f"{f.users.jain:.3f}"),
    MetricRow("worst-off project", lambda f: f.projects.worst),
    MetricRow("its slowdown", lambda f: f"{f.projects.worst_slowdown:,.1f}"),
    MetricRow("makespan", lambda f: format_short_duration(f.makespan_seconds)),
    MetricRow("preemptions", lambda f: f"{f.preemptions:,}"),
    MetricRow("wasted GPU hours", lambda f: f"{f.wasted_gpu_hours:,.1f}"),
)
