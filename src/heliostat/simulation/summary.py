"""The figures as people and programs read them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliostat.simulation.comparison import Outcome, Scenario
from heliostat.simulation.figures import Figures
from heliostat.simulation.traces.records import Trace
from heliostat.simulation.traces.table import NOT_SELECTED

_UNITS = ((86400.0, "d", 3600.0, "h"), (3600.0, "h", 60.0, "m"), (60.0, "m", 1.0, "s"))


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of every policy."""

    title: str
    text: Callable[[Figures], str]


def summary(trace: Trace, scenario: Scenario, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    workload, cluster = scenario.workload, scenario.cluster
    return {
        "trace": {
            "name": trace.name,
            "jobs": len(trace.jobs),
            "left_out": dict(trace.left_out),
            "replayed": len(workload.jobs),
            "impossible": dict(workload.impossible),
        },
        "cluster": {
            "nodes": cluster.text,
            "count": len(cluster.nodes),
            "gpus": cluster.gpus,
            "offered_load": offered_load(scenario),
        },
        "policies": {one.policy: one.figures.as_dict() | {"replay_seconds": one.seconds} for one in outcomes},
    }


def facts(trace: Trace, scenario: Scenario) -> Mapping[str, str]:
    """What was replayed, in words."""
    workload = scenario.workload
    return {
        "trace": trace.name,
        "jobs": _part_of(len(workload.jobs), len(trace.jobs)),
        "nodes": scenario.cluster.text,
        "offered load": f"{offered_load(scenario):.2f}",
    }


def warnings(trace: Trace, scenario: Scenario, outcomes: Sequence[Outcome]) -> list[str]:
    """Jobs that are not in the figures, and why."""
    lines = {why: count for why, count in trace.left_out.items() if why != NOT_SELECTED}
    said = [f"{counted(count, 'line gives', 'lines give')} no job: {why}." for why, count in lines.items()]
    said += [
        f"{counted(count, 'job is', 'jobs are')} impossible here: {why}."
        for why, count in scenario.workload.impossible.items()
    ]
    said += [
        f"{counted(one.figures.unstarted, 'job')} never started under {one.policy}."
        for one in outcomes
        if one.figures.unstarted
    ]
    return said


def counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _part_of(some: int, everything: int) -> str:
    return f"{some:,}" if some == everything else f"{some:,} of {everything:,}"


def offered_load(scenario: Scenario) -> float:
    """What the jobs ask for while they arrive, as a part of what the cluster has in that time."""
    workload, unit = scenario.workload, scenario.cluster.unit
    asked = sum(
        getattr(job.resources, unit) * job.placement.tasks * seconds
        for job, seconds in zip(workload.jobs, workload.run_seconds, strict=True)
    )
    span = workload.submitted_seconds[-1] if workload.jobs else 0.0
    return float(asked / (scenario.cluster.size * span)) if span > 0 else 0.0


def short_time(seconds: float) -> str:
    """`42s`, `3m05s`, `2h07m`, `5d03h`."""
    total = round(seconds)
    for size, unit, below, rest in _UNITS:
        if total >= size:
            return f"{int(total // size)}{unit}{int(total % size // below):02d}{rest}"
    return f"{total}s"


def _percent(part: float) -> str:
    return f"{part:.1%}"


ROWS: tuple[Row, ...] = (
    Row("wait, mean", lambda f: short_time(f.wait.mean)),
    Row("wait, p50", lambda f: short_time(f.wait.p50)),
    Row("wait, p90", lambda f: short_time(f.wait.p90)),
    Row("wait, p99", lambda f: short_time(f.wait.p99)),
    Row("completion, mean", lambda f: short_time(f.completion.mean)),
    Row("completion, p50", lambda f: short_time(f.completion.p50)),
    Row("completion, p99", lambda f: short_time(f.completion.p99)),
    Row("slowdown, mean", lambda f: f"{f.slowdown.mean:,.1f}"),
    Row("slowdown, p99", lambda f: f"{f.slowdown.p99:,.1f}"),
    Row("utilisation", lambda f: _percent(f.utilisation)),
    Row("utilisation while jobs arrive", lambda f: _percent(f.utilisation_while_arriving)),
    Row("fairness of projects (Jain)", lambda f: f"{f.projects.jain:.3f}"),
    Row("fairness of users (Jain)", lambda f: f"{f.users.jain:.3f}"),
    Row("worst-off project", lambda f: f.projects.worst),
    Row("its slowdown", lambda f: f"{f.projects.worst_slowdown:,.1f}"),
    Row("makespan", lambda f: short_time(f.makespan_seconds)),
    Row("preemptions", lambda f: f"{f.preemptions:,}"),
    Row("wasted GPU hours", lambda f: f"{f.wasted_gpu_hours:,.1f}"),
)
