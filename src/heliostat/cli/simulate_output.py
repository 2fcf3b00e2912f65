"""Output of `helio simulate`: progress, table, report."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from heliostat.cli.output import Column, print_json, print_message, print_table, sanitize_text

if TYPE_CHECKING:
    from heliostat.simulation.comparison import ComparisonColumn, ReplayProgressCallback, ReplayScenario
    from heliostat.simulation.traces.trace import Trace


def check_output_file(option: str, path: Path | None) -> None:
    """Called before the replay, which may take minutes."""
    from heliostat.errors import Invalid

    if path is None:
        return
    if path.is_dir():
        raise Invalid(f"{option}: {path} is a folder.", f"Name a file: {path / 'report.html'}.")
    if not path.parent.is_dir():
        raise Invalid(f"{option}: there is no folder {path.parent}.", f"Create it first: mkdir -p {path.parent}")


@contextmanager
def show_progress(names: Sequence[str], jobs: int) -> "Iterator[ReplayProgressCallback]":
    """A progress bar for each policy; only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda name, finished: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks = {name: bars.add_task(name, total=jobs) for name in names}
        yield lambda name, finished: bars.update(tasks[name], completed=finished)


def write_report(
    path: Path, trace: "Trace", scenarios: "Sequence[ReplayScenario]", columns: "Sequence[ComparisonColumn]"
) -> None:
    from heliostat.simulation.report.html_page import render_page
    from heliostat.simulation.summary import describe_scenarios

    title = f"Replay of {trace.name}"
    path.write_text(render_page(title, describe_scenarios(trace, scenarios), columns), encoding="utf-8")
    print_message(f"Report: {path}")


def print_comparison(
    trace: "Trace", scenarios: "Sequence[ReplayScenario]", columns: "Sequence[ComparisonColumn]", as_json: bool
) -> None:
    from heliostat.simulation.summary import METRIC_ROWS, build_summary, describe_scenarios, list_warnings

    if as_json:
        print_json(build_summary(trace, columns))
        return
    facts = describe_scenarios(trace, scenarios).items()
    print(sanitize_text(", ".join(f"{name} {value}" for name, value in facts)), end="\n\n")
    print_table(
        [Column("METRIC"), *(Column(column.title, right_aligned=True) for column in columns)],
        ([row.title, *(row.format_value(column.result.metrics) for column in columns)] for row in METRIC_ROWS),
    )
    for warning in list_warnings(trace, columns):
        print_message(sanitize_text(warning))
