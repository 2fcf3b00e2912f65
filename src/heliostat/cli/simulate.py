"""`helio simulate`: replays a trace of jobs under one or several scheduling policies. Needs no server."""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from heliostat.cli.output import JsonFlag, format_count, print_message, sanitize_text
from heliostat.cli.simulate_output import check_output_files, print_comparison, show_progress, write_report

if TYPE_CHECKING:
    from heliostat.simulation.cluster import ReplayCluster
    from heliostat.simulation.policies import NamedPolicy
    from heliostat.simulation.traces.reader import TraceReadOptions
    from heliostat.simulation.traces.swf_format import GpuSource
    from heliostat.simulation.traces.trace import Trace
    from heliostat.simulation.workload import Workload

MAX_SYNTHETIC_JOBS = 1_000_000
FORECAST_SAMPLE = 500
DEFAULT_POLICY = "fairshare"
DEFAULT_NODES = "8x8"
CURRENT_NODES = "current"
_TIME_HELP = (
    "A date or time, UTC if it has no time zone, or a duration since the first submission: 2026-10-01, 7d."
)


def simulate(
    trace: Annotated[
        Path | None, typer.Argument(metavar="TRACE", help="Trace file: history, SWF or CSV; may be .gz.")
    ] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            help="Nodes x GPUs: 8x8; with types: 4x8xA100,10x2xT4; without GPUs: 20xcpu; 'current': the nodes of"
            " the running cluster. Default: 8x8. May be repeated to compare clusters."
        ),
    ] = None,
    cpus: Annotated[
        int | None,
        typer.Option(help="CPUs per node. Default: enough for all jobs; of current nodes, their own.", min=1),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory per node: 256G. Default: enough for all jobs; of current nodes, their own."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Scheduling policy: a preset, a TOML file, or a cluster.toml. Default: fairshare."),
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
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help=f"Jobs submitted at or after TIME. {_TIME_HELP}"),
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Jobs submitted before TIME.")] = None,
    gpus_from: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="procs: the processors of the jobs of an SWF file are GPUs."),
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
    scale_load: Annotated[
        float | None,
        typer.Option(
            help="Scale the times between submissions so that the offered load on the first nodes becomes this."
        ),
    ] = None,
    forecasts: Annotated[
        bool,
        typer.Option("--forecasts", help="Also forecast about 500 of the jobs, and measure how many were right."),
    ] = False,
    parallel: Annotated[
        int | None, typer.Option(help="Number of processes. Default: one per core.", min=1)
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML report with plots to this file.")
    ] = None,
    jobs_csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write start, end, wait and nodes of each job to this file."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the files of --report and --jobs-csv.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Replay past jobs on a simulated cluster to compare policies, or on several to compare clusters.

    Prints wait times, completion times, slowdowns, utilization and fairness of each, side by side.
    """
    from heliostat.simulation.comparison import ReplayScenario, compare_clusters
    from heliostat.simulation.report.jobs_csv import write_jobs_csv
    from heliostat.simulation.traces.csv_format import parse_column_map, parse_row_filter
    from heliostat.simulation.traces.reader import TraceReadOptions
    from heliostat.simulation.traces.submission_period import select_submission_period

    policies = _policies(policy, compare)
    clusters = [_cluster(text, cpus, _memory(memory)) for text in dict.fromkeys(nodes or [DEFAULT_NODES])]
    files = check_output_files({"--report": report, "--jobs-csv": jobs_csv}, trace, overwrite=force)
    _above_zero("--limit-factor", limit_factor)
    _above_zero("--scale-load", scale_load)
    saved = _duration(checkpoint)
    options = TraceReadOptions(
        trace_format,
        parse_column_map(column_map or ()),
        parse_row_filter(where or ()),
        _gpu_source(gpus_from),
        limit_factor,
        skip_bad,
        dict.fromkeys(name for item in policies for name in item.policy.classes),
    )
    if generate is None:
        whole_trace = _read(trace, options)
    else:
        whole_trace = _generate(trace, generate, seed, load, int(clusters[0].gpus))
    jobs_trace = select_submission_period(whole_trace, since, until)
    workloads = _workloads(jobs_trace, clusters, any_type, scale_load, is_default=not nodes)
    sample = FORECAST_SAMPLE if forecasts else 0
    scenarios = [ReplayScenario(*pair, saved, sample) for pair in zip(clusters, workloads, strict=True)]
    with show_progress([item.name for item in policies], len(workloads[0].jobs)) as report_progress:
        compared = compare_clusters(scenarios, policies, parallel or len(os.sched_getaffinity(0)), report_progress)
    writers: dict[str, Callable[[TextIO], object]] = {
        "--report": lambda file: write_report(file, jobs_trace, scenarios, compared),
        "--jobs-csv": lambda file: write_jobs_csv(file, compared),
    }
    print_comparison(jobs_trace, scenarios, compared, policies, as_json)
    for output_file in files:
        output_file.write(writers[output_file.option])
    if workloads[0].impossible and not nodes:
        print_message(f"hint: {_OWN_NODES}")


_OWN_NODES = f"These are the default nodes, {DEFAULT_NODES}. Describe your own: --nodes 4x8xA100,10x2xT4."


def _cluster(text: str, cpus: int | None, memory_mib: int | None) -> "ReplayCluster":
    from heliostat.simulation.cluster import parse_cluster, read_current_cluster

    if text != CURRENT_NODES:
        return parse_cluster(text, cpus, memory_mib)
    from heliostat.cli.connection import connect

    return read_current_cluster(text, connect().nodes.list(), cpus, memory_mib)


def _policies(policy: str | None, compare: str | None) -> "list[NamedPolicy]":
    from heliostat.simulation.policies import read_policies

    if policy is not None and compare is not None:
        raise typer.BadParameter(f"Use either --policy or --compare: --compare {policy},{compare}.")
    return read_policies((compare or policy or DEFAULT_POLICY).split(","))


def _gpu_source(text: str | None) -> "GpuSource | None":
    from heliostat.simulation.traces.swf_format import GpuSource

    if text is not None and text not in list(GpuSource):
        raise typer.BadParameter(f"--gpus-from: {text!r} is not one of {', '.join(GpuSource)}.")
    return None if text is None else GpuSource(text)


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


def _workloads(
    trace: "Trace",
    clusters: "Sequence[ReplayCluster]",
    any_type: bool,
    scale_load: float | None,
    *,
    is_default: bool,
) -> "list[Workload]":
    """The jobs of the trace that each cluster can run, for each cluster."""
    from heliostat.simulation.offered_load import scale_to_load
    from heliostat.simulation.workload import build_workloads

    workloads = build_workloads(trace.jobs, clusters, any_type=any_type)
    _check_any_job_fits(workloads[0], clusters, trace, is_default=is_default)
    return workloads if scale_load is None else scale_to_load(workloads, clusters[0], scale_load)


def _check_any_job_fits(
    workload: "Workload", clusters: "Sequence[ReplayCluster]", trace: "Trace", *, is_default: bool
) -> None:
    from heliostat.errors import Invalid

    if workload.jobs:
        return
    reasons = ", ".join(
        f"{reason} ({format_count(count, 'job')})" for reason, count in workload.impossible.items()
    )
    nodes = " and ".join(cluster.nodes_text for cluster in clusters)
    message = f"The nodes {nodes} cannot run any job of {trace.name}: {reasons}."
    raise Invalid(sanitize_text(message), _OWN_NODES if is_default else "Change --nodes.")
