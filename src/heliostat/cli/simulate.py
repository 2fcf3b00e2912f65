"""`helio simulate`: replays a trace of jobs under one or several scheduling policies. Needs no server."""

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
        Path | None, typer.Argument(metavar="TRACE", help="Trace file: history, SWF or CSV; may be .gz.")
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(help="Nodes x GPUs: 8x8; with types: 4x8xA100,10x2xT4; without GPUs: 20xcpu. Default: 8x8."),
    ] = None,
    cpus: Annotated[int | None, typer.Option(help="CPUs per node. Default: enough for all jobs.", min=1)] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory per node: 256G. Default: enough for all jobs.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Scheduling policy: a preset or a TOML file. Default: fairshare.")
    ] = None,
    compare: Annotated[str | None, typer.Option(help="Policies to compare: fifo,easy,mine.toml.")] = None,
    trace_format: Annotated[
        str | None, typer.Option("--format", help="Format: history, swf or csv. Default: by the file name.")
    ] = None,
    column_map: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN,…", help="Columns of a CSV for the fields of a job."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Only rows with this value. May be repeated."),
    ] = None,
    limit_factor: Annotated[
        float | None, typer.Option(help="Time limit of jobs without one, as a multiple of their run time.")
    ] = None,
    any_type: Annotated[bool, typer.Option("--any-type", help="Ignore the GPU types that jobs request.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip lines that cannot be read.")] = False,
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint interval of jobs, the most work lost by preemption: 30m.")
    ] = None,
    generate: Annotated[
        int | None,
        typer.Option(help="Generate this many synthetic jobs; no trace.", min=1, max=MAX_SYNTHETIC_JOBS),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of --generate.", min=0)] = 0,
    load: Annotated[float, typer.Option(help="Load that --generate creates, as a fraction of the cluster.")] = 0.9,
    parallel: Annotated[
        int | None, typer.Option(help="Number of processes. Default: one per core.", min=1)
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report with plots to this file.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Replay past jobs on a simulated cluster to compare policies.

    Prints wait times, completion times, slowdowns, utilization and fairness of each policy, side by side.
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
    classes = dict.fromkeys(name for item in policies for name in item.policy.classes)
    options = TraceReadOptions(trace_format, columns, rows, limit_factor, skip_bad, classes)
    jobs_trace = (
        _read(trace, options) if generate is None else _generate(trace, generate, seed, load, cluster.gpus)
    )
    scenario = ReplayScenario(
        cluster, build_workload(jobs_trace.jobs, cluster, any_type=any_type), _duration(checkpoint)
    )
    _check_any_job_fits(scenario, jobs_trace, nodes)
    with _progress([item.name for item in policies], len(scenario.workload.jobs)) as report_progress:
        outcomes = replay_all(scenario, policies, parallel or len(os.sched_getaffinity(0)), report_progress)
    if report is not None:
        _write(report, jobs_trace, scenario, outcomes)
    _print(jobs_trace, scenario, outcomes, as_json)
    if scenario.workload.impossible and nodes is None:
        print_message(f"hint: {_OWN_NODES}")


_OWN_NODES = f"These are the default nodes, {DEFAULT_NODES}. Describe your own: --nodes 4x8xA100,10x2xT4."


def _policies(policy: str | None, compare: str | None) -> "list[NamedPolicy]":
    from heliostat.simulation.policies import read_policies

    if policy is not None and compare is not None:
        raise typer.BadParameter(f"Use either --policy or --compare: --compare {policy},{compare}.")
    return read_policies((compare or policy or DEFAULT_POLICY).split(","))


def _check_report(path: Path | None) -> None:
    """Checked before the replay, which may take minutes."""
    from heliostat.errors import Invalid

    if path is None:
        return
    if path.is_dir():
        raise Invalid(f"--report: {path} is a folder.", f"Name a file: {path / 'report.html'}.")
    if not path.parent.is_dir():
        raise Invalid(f"--report: there is no folder {path.parent}.", f"Create it first: mkdir -p {path.parent}")


def _read(path: Path | None, options: "TraceReadOptions") -> "Trace":
    from heliostat.simulation.traces.reader import read_trace

    if path is None:
        raise typer.BadParameter("Name a trace file, or generate synthetic jobs with --generate 2000.")
    return read_trace(path, options)


def _generate(path: Path | None, jobs: int, seed: int, load: float, gpus: int) -> "Trace":
    from heliostat.simulation.traces.synthetic import SyntheticTraceSpec, generate_trace

    if path is not None:
        raise typer.BadParameter("Use either a trace file or --generate.")
    if not gpus:
        raise typer.BadParameter("Synthetic jobs request GPUs, but these nodes have none. Try --nodes 8x8.")
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


def _check_any_job_fits(scenario: "ReplayScenario", trace: "Trace", nodes: str | None) -> None:
    from heliostat.errors import Invalid

    if not scenario.workload.jobs:
        reasons = ", ".join(
            f"{reason} ({format_count(count, 'job')})" for reason, count in scenario.workload.impossible.items()
        )
        message = f"The nodes {scenario.cluster.nodes_text} cannot run any job of {trace.name}: {reasons}."
        raise Invalid(sanitize_text(message), _OWN_NODES if nodes is None else "Change --nodes.")


@contextmanager
def _progress(names: Sequence[str], jobs: int) -> "Iterator[ReplayProgressCallback]":
    """A progress bar for each policy; only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda name, finished: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks = {name: bars.add_task(name, total=jobs) for name in names}
        yield lambda name, finished: bars.update(tasks[name], completed=finished)


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
    columns = [Column("METRIC"), *(Column(item.policy, right_aligned=True) for item in outcomes)]
    print_table(
        columns, ([row.title, *(row.format_value(item.metrics) for item in outcomes)] for row in METRIC_ROWS)
    )
    for warning in list_warnings(trace, scenario, outcomes):
        print_message(sanitize_text(warning))
