"""Summary of a comparison: metrics as a table and as JSON, and warnings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from heliostat.models.amounts import format_count
from heliostat.scheduling.forecast_calibration import ForecastAccuracy
from heliostat.simulation.comparison import ComparisonColumn, ReplayScenario
from heliostat.simulation.forecast_coverage import ForecastCoverage
from heliostat.simulation.metrics import ReplayMetrics
from heliostat.simulation.offered_load import compute_offered_load
from heliostat.simulation.policies import NamedPolicy
from heliostat.simulation.traces.csv_format import NOT_SELECTED
from heliostat.simulation.traces.trace import Trace
from heliostat.simulation.workload import Workload

_UNITS = ((86400.0, "d", 3600.0, "h"), (3600.0, "h", 60.0, "m"), (60.0, "m", 1.0, "s"))


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric, as a row of the table."""

    title: str
    format_value: Callable[[ReplayMetrics], str]


def build_summary(trace: Trace, columns: Sequence[ComparisonColumn]) -> dict[str, Any]:
    """The workloads of all clusters have the same jobs."""
    workload = columns[0].scenario.workload
    scenarios = {column.scenario.cluster.nodes_text: column.scenario for column in columns}
    return {
        "trace": {
            "name": trace.name,
            "jobs": len(trace.jobs),
            "skipped": dict(trace.skipped),
            "replayed": len(workload.jobs),
            "impossible": dict(workload.impossible),
            "gap_factor": workload.gap_factor,
        },
        "clusters": [
            {
                "nodes": nodes,
                "count": len(scenario.cluster.nodes),
                "gpus": scenario.cluster.gpus,
                "offered_load": compute_offered_load(scenario.workload, scenario.cluster),
                "policies": {
                    column.result.policy: column.result.metrics.as_dict()
                    | {"replay_seconds": column.result.replay_seconds}
                    | ({"forecasts": asdict(column.result.forecasts)} if column.result.forecasts else {})
                    for column in columns
                    if column.scenario is scenario
                },
            }
            for nodes, scenario in scenarios.items()
        ],
    }


def describe_scenarios(trace: Trace, scenarios: Sequence[ReplayScenario]) -> Mapping[str, str]:
    """Trace, jobs, nodes and offered load, as text."""
    workload = scenarios[0].workload
    return {
        "trace": trace.name,
        "jobs": _format_fraction(len(workload.jobs), len(trace.jobs)),
        "nodes": " and ".join(scenario.cluster.nodes_text for scenario in scenarios),
        "offered load": " and ".join(
            f"{compute_offered_load(scenario.workload, scenario.cluster):.2f}" for scenario in scenarios
        )
        + _format_gap_factor(workload.gap_factor),
    }


def list_warnings(trace: Trace, columns: Sequence[ComparisonColumn], policies: Sequence[NamedPolicy]) -> list[str]:
    """Jobs that the metrics do not include, and why; accounts in policies that have no job."""
    lines = {reason: count for reason, count in trace.skipped.items() if reason != NOT_SELECTED}
    warnings = [f"{format_count(count, 'line')} skipped: {reason}." for reason, count in lines.items()]
    warnings += [
        f"{format_count(count, 'job')} cannot run on these nodes: {reason}."
        for reason, count in columns[0].scenario.workload.impossible.items()
    ]
    warnings += [
        f"{format_count(column.result.metrics.unstarted, 'job')} never started under {column.title}."
        for column in columns
        if column.result.metrics.unstarted
    ]
    for named in policies:
        if accounts := _accounts_without_jobs(named, columns[0].scenario.workload):
            warnings.append(f"No job is replayed of {', '.join(accounts)}, which policy {named.name} names.")
    return warnings


def _accounts_without_jobs(named: NamedPolicy, workload: Workload) -> list[str]:
    """Often a name with a mistake: `project visoin`."""
    replayed = {("project", job.project) for job in workload.jobs} | {("user", job.user) for job in workload.jobs}
    replayed |= {("department", name) for name in workload.departments.values()}
    projects = [*named.projects, *(each.project for each in named.reservations if each.project)]
    accounts = [("project", name) for name in projects] + [("department", name) for name in named.departments]
    return [
        f"{level} {name}"
        for level, name in dict.fromkeys([*accounts, *named.quotas])
        if (level, name) not in replayed
    ]


def _format_fraction(count: int, total: int) -> str:
    return f"{count:,}" if count == total else f"{count:,} of {total:,}"


def format_short_duration(seconds: float) -> str:
    """`42s`, `3m05s`, `2h07m`, `5d03h`."""
    total = round(seconds)
    for size, unit, below, rest in _UNITS:
        if total >= size:
            return f"{int(total // size)}{unit}{int(total % size // below):02d}{rest}"
    return f"{total}s"


def _format_gap_factor(factor: float) -> str:
    return "" if factor == 1 else f" (times between submissions x {factor:.3g})"


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


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """One row of the table of forecasts."""

    title: str
    format_value: Callable[[ForecastCoverage], str]


def _part(count: Callable[[ForecastAccuracy], int]) -> Callable[[ForecastCoverage], str]:
    return lambda f: _percent(count(f.shown) / f.shown.of) if f.shown.of else "-"


def _format_width(accuracy: ForecastAccuracy) -> str:
    return "-" if accuracy.median_width is None else f"{accuracy.median_width:.2f}"


COVERAGE_ROWS: tuple[CoverageRow, ...] = (
    CoverageRow("jobs forecast", lambda f: f"{f.shown.of:,}"),
    CoverageRow("jobs without a forecast", lambda f: f"{f.without_forecast:,}"),
    CoverageRow("started within the range", _part(lambda accuracy: accuracy.within)),
    CoverageRow("earlier", _part(lambda accuracy: accuracy.early)),
    CoverageRow("later", _part(lambda accuracy: accuracy.late)),
    CoverageRow("width of the range / wait, p50", lambda f: _format_width(f.shown)),
    CoverageRow(
        "within the range before calibration",
        lambda f: _percent(f.computed.within / f.computed.of) if f.computed.of else "-",
    ),
    CoverageRow("its width / wait, p50", lambda f: _format_width(f.computed)),
)
