"""Jobs of a trace, fitted to a cluster."""

from dataclasses import replace

import pytest

from heliostat.errors import Invalid
from heliostat.simulation.cluster import UNLIMITED_CPUS, ReplayCluster, parse_cluster
from heliostat.simulation.traces.trace import TraceJob
from heliostat.simulation.workload import build_workload


def shaped(nodes: str, cpus: int | None = None, any_type: bool = False, **wanted: object) -> object:
    """(tasks, GPUs, cpus) of the job there, or why there is none."""
    job = TraceJob(0, 60, **wanted)  # type: ignore[arg-type]
    workload = build_workload([job], parse_cluster(nodes, cpus), any_type=any_type)
    if workload.impossible:
        return next(iter(workload.impossible))
    made = workload.jobs[0]
    return made.placement.tasks, made.resources.gpus, made.resources.cpus


@pytest.mark.parametrize(
    ("gpus", "tasks", "shape"),
    [
        (0, 1, (1, 0, 1)),
        (0.5, 1, (1, 0.5, 1)),
        (1.5, 1, (1, 2, 1)),
        (8, 1, (1, 8, 1)),
        (9, 1, (2, 8, 1)),
        (16, 1, (2, 8, 1)),
        (20, 1, (3, 8, 1)),
        (2, 3, (3, 2, 1)),
        (12, 2, (3, 8, 1)),
        (25, 1, "larger than the cluster"),
        (8, 4, "larger than the cluster"),
    ],
)
def test_a_job_too_large_for_one_node_becomes_a_gang_of_whole_nodes(
    gpus: float, tasks: int, shape: object
) -> None:
    assert shaped("3x8", gpus=gpus, tasks=tasks) == shape


def test_types_decide_which_nodes_count() -> None:
    assert shaped("2x8xA100,4x2xT4", gpus=4, gpu_type="t4") == (2, 2, 1)
    assert shaped("2x8xA100", gpus=4, gpu_type="T4") == "no node has a GPU of type T4"
    assert shaped("2x8xA100", any_type=True, gpus=4, gpu_type="T4") == (1, 4, 1)
    assert shaped("2xcpu", cpus=8, gpus=1) == "no node has a GPU"


def test_a_slice_is_only_for_jobs_that_name_its_type_and_is_not_shared() -> None:
    nodes = "2x7xA100-1g.10gb"
    assert shaped(nodes, gpus=2, gpu_type="A100-1g.10gb") == (1, 2, 1)
    assert shaped(nodes, gpus=1) == "no node has a GPU that is not a MIG slice"
    assert shaped(nodes, gpus=0.5, gpu_type="A100-1g.10gb") == "no node lets jobs share such a GPU"


def test_a_part_of_a_gpu_needs_a_node_that_lets_jobs_share_gpus() -> None:
    (node,) = parse_cluster("1x8").nodes
    cluster = ReplayCluster("current", (replace(node, splits_devices=False),))
    workload = build_workload([TraceJob(0, 60, gpus=0.5), TraceJob(0, 60, gpus=1)], cluster)
    assert workload.impossible == {"no node lets jobs share such a GPU": 1}


def test_cpus_count_only_when_nodes_have_a_number_of_them() -> None:
    assert shaped("2x8", gpus=1, cpus=None) == (1, 1, 1)
    assert parse_cluster("2x8").nodes[0].cpus == UNLIMITED_CPUS
    assert shaped("2xcpu", 8) == (1, 0, 1)


def test_many_processors_become_whole_nodes() -> None:
    job = TraceJob(0, 60, cpus=20)
    made = build_workload([job], parse_cluster("4xcpu", 8)).jobs[0]
    assert (made.placement.tasks, made.resources.cpus) == (3, 8)


def test_a_gpu_job_that_requests_more_cpus_than_a_node_has_is_impossible() -> None:
    job = TraceJob(0, 60, gpus=1, cpus=20)
    assert build_workload([job], parse_cluster("4x8", 8)).impossible == {"no node has enough cpus or memory": 1}


def test_times_count_from_the_first_job_that_fits() -> None:
    jobs = [TraceJob(50, 1, gpus=99), TraceJob(100, 1, gpus=1), TraceJob(103.5, 1, gpus=1)]
    workload = build_workload(jobs, parse_cluster("1x8"))
    assert workload.submitted_seconds == (0.0, 3.5)
    assert workload.impossible == {"larger than the cluster": 1}


@pytest.mark.parametrize(
    "text", ["", "8", "0x8", "8x0", "8x", "x8", "8x99", "99999x8", "20xcpu", "8x8xA 100", "8x8,"]
)
def test_invalid_node_descriptions_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_cluster(text)
    assert caught.value.hint
