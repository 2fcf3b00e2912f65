"""The HTML page of a comparison: scenario, table of metrics, four charts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from heliostat.simulation.comparison import ComparisonColumn
from heliostat.simulation.metrics import compute_job_sizes, compute_job_times
from heliostat.simulation.report import curves, svg_charts
from heliostat.simulation.summary import METRIC_ROWS

_MAX_PROJECTS = 20


def render_page(title: str, facts: Mapping[str, str], columns: Sequence[ComparisonColumn]) -> str:
    """A complete HTML document without scripts and external resources."""
    plots = "".join(_figure(caption, svg) for caption, svg in _plots(columns))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style></head>
<body><main><h1>{escape(title)}</h1>
<p>{" · ".join(f"{escape(name)}: <b>{escape(value)}</b>" for name, value in facts.items())}</p>
{_table(columns)}
<p class="legend">{_legend(columns)}</p>
{plots}</main></body></html>
"""


def _table(columns: Sequence[ComparisonColumn]) -> str:
    head = "".join(f"<th>{escape(column.title)}</th>" for column in columns)
    body = "".join(
        f"<tr><th>{escape(row.title)}</th>"
        + "".join(f"<td>{escape(row.format_value(column.result.metrics))}</td>" for column in columns)
        + "</tr>"
        for row in METRIC_ROWS
    )
    return f'<div class="wide"><table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _legend(columns: Sequence[ComparisonColumn]) -> str:
    return " ".join(
        f'<span class="key k{nth}">{escape(column.title)}</span>' for nth, column in enumerate(columns)
    )


def _plots(columns: Sequence[ComparisonColumn]) -> Iterable[tuple[str, str]]:
    until = max(column.result.metrics.makespan_seconds for column in columns)
    time = svg_charts.elapsed_time_axis("time since first submission", until)
    waits = {
        column.title: curves.cumulative_distribution(
            compute_job_times(column.scenario.workload, column.result.attempts).wait_seconds, 1.0
        )
        for column in columns
    }
    longest = max(column.result.metrics.wait.max for column in columns)
    percent = svg_charts.linear_axis("jobs, %", 100.0)
    yield (
        "Wait of jobs",
        svg_charts.line_chart("wait of jobs", svg_charts.duration_axis("wait at most", longest), percent, waits),
    )
    used = {column.title: _utilisation(column, until) for column in columns}
    unit = "GPUs" if all(column.scenario.cluster.gpus for column in columns) else "CPUs"
    share = svg_charts.linear_axis(f"{unit} in use, %", 100.0)
    yield "Utilisation of the cluster", svg_charts.line_chart("utilisation", time, share, used)
    queues = {
        column.title: curves.queue_length_over_time(
            column.result.attempts, column.scenario.workload.submitted_seconds, until
        )
        for column in columns
    }
    most = max((y for points in queues.values() for _, y in points), default=1.0)
    count = svg_charts.linear_axis("pending jobs", max(most, 1.0), "{:,.0f}".format if most > 5 else "{:g}".format)
    yield "Queue length", svg_charts.line_chart("queue length", time, count, queues)
    yield _slowdowns(columns)


def _utilisation(column: ComparisonColumn, until: float) -> curves.Points:
    scenario = column.scenario
    sizes = compute_job_sizes(scenario.workload, scenario.cluster)
    return curves.utilisation_over_time(column.result.attempts, sizes, scenario.cluster.size, until)


def _slowdowns(columns: Sequence[ComparisonColumn]) -> tuple[str, str]:
    counts = Counter(job.project for job in columns[0].scenario.workload.jobs)
    groups = [name for name, _ in counts.most_common(_MAX_PROJECTS)]
    means = {
        column.title: [column.result.metrics.projects.slowdowns.get(name, 1.0) for name in groups]
        for column in columns
    }
    highest = float(np.max(list(means.values()), initial=1.0))
    x = svg_charts.factor_axis("mean bounded slowdown (1: no wait)", highest)
    more = f" ({_MAX_PROJECTS} projects with the most jobs)" if len(counts) > _MAX_PROJECTS else ""
    return f"Slowdown by project{more}", svg_charts.bar_chart("slowdown by project", x, groups, means)


def _figure(caption: str, svg: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"


_LIGHT = ("#0b62c4", "#c2410c", "#15803d", "#a21caf", "#b45309", "#0e7490", "#be123c", "#4d7c0f")
_DARK = ("#6cb0ff", "#ff9b6a", "#5fd38a", "#f08bff", "#fbbf4a", "#5ad4e6", "#ff7d9a", "#b6e35a")


def _colours(colours: Sequence[str]) -> str:
    return "".join(f"--c{nth}:{colour};" for nth, colour in enumerate(colours))


_SERIES = "".join(
    f".line.s{nth}{{stroke:var(--c{nth})}}rect.s{nth}{{fill:var(--c{nth})}}.k{nth}::before{{background:var(--c{nth})}}"
    for nth in range(len(_LIGHT))
)
_STYLE = f"""
:root{{color-scheme:light dark;--ink:#1c2330;--faint:#5b6472;--rule:#d9dee5;--paper:#fff;{_colours(_LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{--ink:#e6eaf0;--faint:#9aa5b4;--rule:#333c49;--paper:#12161c;
{_colours(_DARK)}}}}}
body{{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}}
main{{max-width:860px;margin:0 auto;padding:24px 16px}}
h1{{font-size:1.4rem}}
.wide{{overflow-x:auto}}
table{{border-collapse:collapse;font-variant-numeric:tabular-nums}}
th,td{{padding:4px 14px 4px 0;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}}
th{{font-weight:400}}
thead th{{font-weight:600}}
tbody th{{text-align:left;color:var(--faint)}}
figure{{margin:32px 0}}
figcaption{{font-weight:600;margin-bottom:8px}}
svg{{width:100%;height:auto;display:block;font:12px system-ui,sans-serif;fill:var(--faint)}}
.title{{text-anchor:middle}}
.grid{{stroke:var(--rule)}}
.line{{fill:none;stroke-width:2;stroke-linejoin:round}}
.legend{{position:sticky;top:0;background:var(--paper);padding:8px 0;margin:16px 0 0}}
.key{{margin-right:18px;white-space:nowrap}}
.key::before{{content:"";display:inline-block;width:14px;height:4px;margin-right:6px;vertical-align:middle}}
{_SERIES}
"""
