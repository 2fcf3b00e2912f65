"""Output of `helio simulate`: progress, table, files."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from heliostat.cli.output import Column, print_json, print_message, print_table, sanitize_text
from heliostat.errors import Conflict, Invalid

if TYPE_CHECKING:
    from heliostat.simulation.comparison import ComparisonColumn, ReplayProgressCallback, ReplayScenario
    from heliostat.simulation.policies import NamedPolicy
    from heliostat.simulation.traces.trace import Trace


def check_output_files(
    paths: Mapping[str, Path | None], trace: Path | None, *, overwrite: bool
) -> "list[OutputFile]":
    """The files to write, by option. Called before the replay, which may take minutes. The trace is never
    overwritten."""
    files = [OutputFile(option, path, overwrite) for option, path in paths.items() if path is not None]
    for number, file in enumerate(files):
        file.check()
        for other in (trace, *(earlier.path for earlier in files[:number])):
            if other is not None and file.path.resolve() == other.resolve():
                raise Invalid(f"{file.option}: {file.path} is another file of this command.", "Name another file.")
    return files


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file, and the option that names it. Only with `overwrite` may it exist."""

    option: str
    path: Path
    overwrite: bool

    def check(self) -> None:
        if self.path.is_dir():
            raise Invalid(f"{self.option}: {self.path} is a folder.", "Name a file in it.")
        if not self.path.parent.is_dir():
            parent = self.path.parent
            raise Invalid(f"{self.option}: there is no folder {parent}.", f"Create it first: mkdir -p {parent}")
        if self.path.exists() and not self.overwrite:
            raise self._exists()

    def write(self, write: Callable[[TextIO], object]) -> None:
        try:
            with self.path.open("w" if self.overwrite else "x", encoding="utf-8", newline="") as file:
                write(file)
        except FileExistsError:
            raise self._exists() from None
        except OSError as error:
            raise Invalid(f"{self.path} cannot be written: {error.strerror}.", "Name another file.") from error
        print_message(f"Wrote {self.path}.")

    def _exists(self) -> Conflict:
        return Conflict(
            f"{self.option}: {self.path} exists already.", "Name another file, or overwrite it: --force."
        )


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
    file: TextIO, trace: "Trace", scenarios: "Sequence[ReplayScenario]", columns: "Sequence[ComparisonColumn]"
) -> None:
    from heliostat.simulation.report.html_page import render_page
    from heliostat.simulation.summary import describe_scenarios

    file.write(render_page(f"Replay of {trace.name}", describe_scenarios(trace, scenarios), columns))


def print_comparison(
    trace: "Trace",
    scenarios: "Sequence[ReplayScenario]",
    columns: "Sequence[ComparisonColumn]",
    policies: "Sequence[NamedPolicy]",
    as_json: bool,
) -> None:
    from heliostat.simulation.summary import (
        COVERAGE_ROWS,
        METRIC_ROWS,
        build_summary,
        describe_scenarios,
        list_warnings,
    )

    if as_json:
        print_json(build_summary(trace, columns))
        return
    facts = describe_scenarios(trace, scenarios).items()
    print(sanitize_text(", ".join(f"{name} {value}" for name, value in facts)), end="\n\n")
    print_table(
        [Column("METRIC"), *(Column(column.title, right_aligned=True) for column in columns)],
        ([row.title, *(row.format_value(column.result.metrics) for column in columns)] for row in METRIC_ROWS),
    )
    forecasts = [column.result.forecasts for column in columns if column.result.forecasts is not None]
    if forecasts:
        print()
        print_table(
            [Column("FORECASTS"), *(Column(column.title, right_aligned=True) for column in columns)],
            ([row.title, *(row.format_value(coverage) for coverage in forecasts)] for row in COVERAGE_ROWS),
        )
    for warning in list_warnings(trace, columns, policies):
        print_message(sanitize_text(warning))
