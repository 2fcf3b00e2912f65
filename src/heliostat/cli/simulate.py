"""`helio simulate`: replay a trace under one policy or several. Needs no server."""

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.output import (
    Column,
    JsonFlag,
    format_count,
    print_json,
    print_message,
    print_table,
    sanitize_text,
)

if TYPE_CHECKING:
    from heliostat.simulation.comparison import PolicyResult, ReplayProgressCallback, ReplayScenario
    from heliostat.simulation.policies import NamedPolicy
    from heliostat.simulation.traces.reader import TraceReadOptions
    from heliostat.simulation.traces.trace import Trace

MAX_SYNTHETIC_JOBS = 1_000_000
DEFAULT_POLICY = "fairshare"
DEFAULT_NODES = "8x8"


def simulate(
    trace: Annotated[
        Path | None, typer.Argument(metavar="TRACE", help="History, SWF or CSV; .gz is fine.")
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="8x8 (the default): nodes x GPUs; 4x8xA100,10x2xT4; 20xcpu.")
    ] = None,
    cpus: Annotated[int | None, typer.Option(help="CPUs of each node; enough unless said.", min=1)] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of each node: 256G; enough unless said.")] = None,
    policy: Annotated[str | None, typer.Option(help="A preset, or a TOML file; fairshare unless said.")] = None,
    compare: Annotated[str | None, typer.Option(help="Several, side by side: fifo,easy,mine.toml.")] = None,
    trace_format: Annotated[
        str | None, typer.Option("--format", help="history, swf or csv, if the name does not tell.")
    ] = None,
    column_map: Annotated[
        list[str] | None, typer.Option("--map", metavar="FIELD=COLUMN,…", help="Where a CSV has what.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Only such rows. May be repeated.")
    ] = None,
    limit_factor: Annotated[
        float | None, typer.Option(help="Jobs without a limit declare so many times their run time.")
    ] = None,
    any_type: Annotated[bool, typer.Option("--any-type", help="Forget which GPU type jobs wanted.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave lines out that cannot be read.")] = False,
    checkpoint: Annotated[str | None, typer.Option(help="Preempted jobs lose at most so much work: 30m.")] = None,
    generate: Annotated[
        int | None, typer.Option(help="Make up so many jobs instead.", min=1, max=MAX_SYNTHETIC_JOBS)
    ] = None,
    seed: Annotated[int, typer.Option(help="Which jobs are made up.", min=0)] = 0,
    load: Annotated[float, typer.Option(help="How much of the cluster they ask for.")] = 0.9,
    parallel: Annotated[int | None, typer.Option(help="Processes; one per core unless said.", min=1)] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page with plots.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Replay past jobs on made-up machines, under one policy or several.

    Prints waits, completion times, slowdowns, use and fairness, side by side.
    """
    from heliostat.simulation.cluster import parse_cluster
    from heliostat.simulation.comparison import ReplayScenario
    from heliostat.simulation.comparison import compare_policies as replay_all
    from heliostat.simulation.traces.csv_format import parse_column_map, parse_row_filter
    from heliostat.simulation.traces.reader import TraceReadOptions
    from heliostat.simulation.workload import build_workload

    policies = _policies(policy, compare)
    cluster = parse_cluster(nodes or DEFAULT_NODES, cpus, _memory(memory))
    _check_report(report)
    _above_zero("--limit-factor", limit_factor)
    columns, rows = parse_column_map(column_map or ()), parse_row_filter(where or ())
    classes = dict.fromkeys(name for one in policies for name in one.policy.classes)
    how = TraceReadOptions(trace_format, columns, rows, limit_factor, skip_bad, classes)
    found = _read(trace, how) if generate is None else _made_up(trace, generate, seed, load, cluster.gpus)
    scenario = ReplayScenario(
        cluster, build_workload(found.jobs, cluster, any_type=any_type), _duration(checkpoint)
    )
    _check_some_left(scenario, found, nodes)
    with _progress([one.name for one in policies], len(scenario.workload.jobs)) as told:
        outcomes = replay_all(scenario, policies, parallel or len(os.sched_getaffinity(0)), told)
    if report is not None:
        _write(report, found, scenario, outcomes)
    _print(found, scenario, outcomes, as_json)
    if scenario.workload.impossible and nodes is None:
        print_message(f"hint: {_OWN_NODES}")


_OWN_NODES = f"These are the default nodes, {DEFAULT_NODES}. Describe your own: --nodes 4x8xA100,10x2xT4."


def _policies(policy: str | None, compare: str | None) -> "list[NamedPolicy]":
    from heliostat.simulation.policies import read_policies

    if policy is not None and compare is not None:
        raise typer.BadParameter(f"Either --policy or --compare, not both: --compare {policy},{compare}.")
    return read_policies((compare or policy or DEFAULT_POLICY).split(","))


def _check_report(path: Path | None) -> None:
    """Before the replay, which takes its time."""
    from heliostat.errors import Invalid

    if path is None:
        return
    if path.is_dir():
        raise Invalid(f"--report: {path} is a folder.", f"Name a file: {path / 'report.html'}.")
    if not path.parent.is_dir():
        raise Invalid(f"--report: there is no folder {path.parent}.", f"Make it first: mkdir -p {path.parent}")


def _read(path: Path | None, how: "TraceReadOptions") -> "Trace":
    from heliostat.simulation.traces.reader import read_trace

    if path is None:
        raise typer.BadParameter("Name a trace, or make one up with --generate 2000.")
    return read_trace(path, how)


def _made_up(path: Path | None, jobs: int, seed: int, load: float, gpus: int) -> "Trace":
    from heliostat.simulation.traces.synthetic import SyntheticTraceSpec, generate_trace

    if path is not None:
        raise typer.BadParameter("Either a trace or --generate, not both.")
    if not gpus:
        raise typer.BadParameter("Made-up jobs want GPUs: --nodes 8x8.")
    _above_zero("--load", load)
    return generate_trace(SyntheticTraceSpec(jobs, seed, gpus, load))


def _memory(text: str | None) -> int | None:
    from heliostat.models.quantities import parse_memory

    return None if text is None else _parsed("--memory", parse_memory, text)


def _duration(text: str | None) -> int | None:
    from heliostat.models.quantities import parse_duration

    return None if text is None else _parsed("--checkpoint", parse_duration, text)


def _parsed(option: str, parse: Callable[[str], int], text: str) -> int:
    try:
        value = parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}.") from error
    _above_zero(option, value)
    return value


def _above_zero(option: str, value: float | None) -> None:
    if value is not None and not 0 < value < math.inf:
        raise typer.BadParameter(f"{option} must be above 0.")


def _check_some_left(scenario: "ReplayScenario", trace: "Trace", nodes: str | None) -> None:
    from heliostat.errors import Invalid

    if not scenario.workload.jobs:
        why = ", ".join(
            f"{reason} ({format_count(count, 'job')})" for reason, count in scenario.workload.impossible.items()
        )
        message = f"{scenario.cluster.nodes_text} can run none of the jobs of {trace.name}: {why}."
        raise Invalid(sanitize_text(message), _OWN_NODES if nodes is None else "Change --nodes.")


@contextmanager
def _progress(names: Sequence[str], jobs: int) -> "Iterator[ReplayProgressCallback]":
    """A bar for each policy, where a person can see it."""
    if not sys.stderr.isatty():
        yield lambda name, over: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks = {name: bars.add_task(name, total=jobs) for name in names}
        yield lambda name, over: bars.update(tasks[name], completed=over)


def _write(path: Path, trace: "Trace", scenario: "ReplayScenario", outcomes: "Sequence[PolicyResult]") -> None:
    from heliostat.simulation.report.html_page import render_page
    from heliostat.simulation.summary import describe_scenario

    title = f"Replay of {trace.name}"
    path.write_text(render_page(title, describe_scenario(trace, scenario), scenario, outcomes), encoding="utf-8")
    print_message(f"Report: {path}")


def _print(trace: "Trace", scenario: "ReplayScenario", outcomes: "Sequence[PolicyResult]", as_json: bool) -> None:
    from heliostat.simulation.summary import METRIC_ROWS, build_summary, describe_scenario, list_warnings

    if as_json:
        print_json(build_summary(trace, scenario, outcomes))
        return
    print(
        sanitize_text(", ".join(f"{name} {value}" for name, value in describe_scenario(trace, scenario).items())),
        end="\n\n",
    )
    columns = [Column("FIGURE"), *(Column(one.policy, right_aligned=True) for one in outcomes)]
    print_table(
        columns, ([row.title, *(row.format_value(one.metrics) for one in outcomes)] for row in METRIC_ROWS)
    )
    for warning in list_warnings(trace, scenario, outcomes):
        print_message(sanitize_text(warning))
