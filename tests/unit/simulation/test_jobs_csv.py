"""The jobs of a comparison as CSV."""

import csv
import io

from heliostat.simulation.cluster import parse_cluster
from heliostat.simulation.comparison import ReplayScenario, compare_clusters
from heliostat.simulation.policies import read_policies
from heliostat.simulation.report.jobs_csv import write_jobs_csv
from heliostat.simulation.traces.trace import TraceJob
from heliostat.simulation.workload import build_workloads


def jobs_csv(jobs: list[TraceJob], nodes: list[str], policies: list[str]) -> list[dict[str, str]]:
    clusters = [parse_cluster(text) for text in nodes]
    pairs = zip(clusters, build_workloads(jobs, clusters), strict=True)
    columns = compare_clusters(
        [ReplayScenario(*pair) for pair in pairs], read_policies(policies), 1, lambda name, ended: None
    )
    written = io.StringIO()
    write_jobs_csv(written, columns)
    return list(csv.DictReader(io.StringIO(written.getvalue())))


def test_a_row_has_the_times_nodes_and_preemptions_of_a_job() -> None:
    jobs = [
        TraceJob(1000, 100, 100, gpus=8, user="ann", project="vision", priority_class="scavenger", id="s7"),
        TraceJob(1010, 20, 20, gpus=16, user="bob", project="speech"),
    ]
    first, second = jobs_csv(jobs, ["2x8"], ["fairshare"])
    assert first == {
        "cluster": "2x8",
        "policy": "fairshare",
        "job": "s7",
        "project": "vision",
        "user": "ann",
        "submitted_at": "1970-01-01T00:16:40Z",
        "started_at": "1970-01-01T00:17:10Z",
        "ended_at": "1970-01-01T00:18:50Z",
        "wait_seconds": "20.0",
        "run_seconds": "100",
        "gpus": "8",
        "nodes": "gpu-01",
        "preemptions": "1",
    }
    assert (second["job"], second["gpus"], second["nodes"]) == ("2", "16", "gpu-01 gpu-02")


def test_every_policy_on_every_cluster_has_a_row_for_each_job() -> None:
    rows = jobs_csv([TraceJob(0, 10, gpus=1), TraceJob(0, 10, gpus=1)], ["1x1", "1x2"], ["fifo", "easy"])
    assert [(row["cluster"], row["policy"], row["wait_seconds"]) for row in rows] == [
        *(("1x1", policy, wait) for policy in ("fifo", "easy") for wait in ("0.0", "10.0")),
        *(("1x2", policy, "0.0") for policy in ("fifo", "easy") for _ in range(2)),
    ]


def test_text_of_a_trace_is_no_formula_of_a_spreadsheet() -> None:
    (row,) = jobs_csv([TraceJob(0, 10, gpus=1, user="=1+1", project="@x", id="-1")], ["1x1"], ["fifo"])
    assert (row["user"], row["project"], row["job"]) == ("'=1+1", "'@x", "'-1")
