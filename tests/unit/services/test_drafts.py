from dataclasses import replace
from datetime import UTC, datetime

import pytest

from heliostat.errors import Invalid
from heliostat.models import Device, JobRequest, JobSpec, Node, PlacementRequest, Role, TaskLayout, User
from heliostat.services.jobs.drafts import JobDraftContext, draft_job
from unit.scheduling.builders import a_node

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPEC = JobSpec(command=("true",))
BIG = a_node("big", cpus=16, memory_mib=64000, gpus=4, labels={"disk": "ssd"})


def desk(*nodes: Node, data_class: int = 0) -> JobDraftContext:
    user = User("ann", Role.USER, "ann", True, NOW)
    return JobDraftContext(
        user, "ann", nodes or (BIG,), {None: "vision"}, {"vision": data_class}, NOW, None, 86400, 300.0
    )


def refusal(request: JobRequest, at: JobDraftContext) -> Invalid:
    with pytest.raises(Invalid) as refused:
        draft_job(at, request)
    assert refused.value.hint
    return refused.value


def test_a_draft_has_the_requested_values() -> None:
    placement = PlacementRequest(2, TaskLayout.PACK, True, ("disk=ssd",))
    request = JobRequest(
        SPEC, gpus=1, gpu_memory_mib=40000, placement=placement, priority_class="urgent", overtime=True
    )
    job = draft_job(desk(), request)
    assert (job.placement, job.priority_class, job.overtime) == (placement, "urgent", True)
    assert (job.resources.gpu_memory_mib, job.resources.cpus, job.preemptible) == (40000, 4, False)


@pytest.mark.parametrize(("name", "preemptible"), [("scavenger", True), ("normal", False), ("interactive", False)])
def test_a_scavenger_is_always_preemptible(name: str, preemptible: bool) -> None:
    assert draft_job(desk(), JobRequest(SPEC, priority_class=name)).preemptible is preemptible


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python3.11", "-u", "src/train.py", "--lr", "1"), "train.py"),
        (("/opt/bin/train", "x"), "train"),
        (("sh", "-c", "echo 1 > results/a; pwd; ls"), "echo"),
        (("/bin/sh", "-c", "cat /etc/hosts"), "cat"),
        (("bash", "-lc", "(true; ls)"), "true"),
        (("sh", "-c", "python src/train.py; ls"), "train.py"),
        (("python", "-c", "print(1 / 2)"), "print(1 / 2)"),
        (("sh", "-c", ""), "job"),
        (("sh", "run/all.sh"), "all.sh"),
    ],
)
def test_a_job_without_a_name_is_called_like_its_program(command: tuple[str, ...], name: str) -> None:
    assert draft_job(desk(), JobRequest(JobSpec(command=command))).name == name


def test_an_unknown_priority_class_is_refused_with_the_known_ones() -> None:
    error = refusal(JobRequest(SPEC, priority_class="vip"), desk())
    assert "scavenger, normal, interactive, urgent" in str(error.hint)
    assert "priority_class" in error.fields


def test_a_fraction_of_a_gpu_gets_the_same_fraction_of_the_node() -> None:
    shared = a_node("shared", cpus=16, memory_mib=64000, gpus=2, splits_devices=True)
    job = draft_job(desk(BIG, shared), JobRequest(SPEC, gpus=0.5))
    assert (job.resources.gpus, job.resources.cpus, job.resources.memory_mib) == (0.5, 4, 16000)


def split(whole: int = 1) -> Node:
    """A node with whole GPUs, and one GPU split into seven MIG slices."""
    slices = (Device(f"MIG-{at}", whole, "A100-1g.10gb", "MIG", 9728, slice_index=at) for at in range(7))
    node = a_node("split", cpus=28, memory_mib=28000, gpus=whole, splits_devices=True)
    return replace(node, devices=(*node.devices, *slices))


def test_a_slice_gets_its_part_of_the_node() -> None:
    job = draft_job(desk(split()), JobRequest(SPEC, gpus=1, gpu_type="a100-1g.10gb"))
    assert (job.resources.cpus, job.resources.memory_mib) == (2, 2000)
    assert draft_job(desk(split()), JobRequest(SPEC, gpus=1)).resources.cpus == 14


def test_a_slice_is_not_shared() -> None:
    error = refusal(JobRequest(SPEC, gpus=0.5, gpu_type="A100-1g.10gb"), desk(split()))
    assert error.message == "Jobs cannot share a MIG slice."
    assert error.hint == "Request a whole slice: --gpus 1 --gpu-type A100-1g.10gb"
    assert draft_job(desk(split()), JobRequest(SPEC, gpus=0.5)).resources.gpus == 0.5  # of the whole GPU


def test_a_request_without_a_type_is_told_how_to_get_a_slice() -> None:
    error = refusal(JobRequest(SPEC, gpus=2), desk(split()))
    assert error.message == "No node has 2 GPUs."
    assert "1 A100 of 78.1 GiB and 7 A100-1g.10gb of 9.5 GiB" in str(error.hint)
    assert str(error.hint).endswith("MIG slices are only for jobs that name their type: --gpu-type A100-1g.10gb.")
    assert "MIG" not in str(refusal(JobRequest(SPEC, gpus=2, gpu_type="A100"), desk(split())).hint)


@pytest.mark.parametrize(
    ("request_", "words", "possible", "field"),
    [
        (JobRequest(SPEC, gpus=5), "No node has 5 GPUs", "4 A100 of 78.1 GiB", "gpus"),
        (JobRequest(SPEC, gpus=1, gpu_memory_mib=90000), "at least 87.9 GiB", "78.1 GiB", "gpu_memory"),
        (JobRequest(SPEC, gpus=0.5), "fractions of a GPU", "--gpus 1", "gpus"),
        (JobRequest(SPEC, placement=PlacementRequest(labels=("fast",))), "labels fast", "disk=ssd", "labels"),
        (
            JobRequest(SPEC, gpus=2, placement=PlacementRequest(tasks=3)),
            "can run 2 tasks",
            "Request 2 tasks",
            "tasks",
        ),
        (
            JobRequest(SPEC, placement=PlacementRequest(tasks=2, layout=TaskLayout.SPREAD)),
            "need 2 nodes",
            "layout pack",
            "tasks",
        ),
    ],
    ids=["gpus", "gpu memory", "parts", "labels", "tasks", "spread"],
)
def test_an_infeasible_request_is_refused_with_a_hint(
    request_: JobRequest, words: str, possible: str, field: str
) -> None:
    error = refusal(request_, desk())
    assert error.code == "impossible"
    assert words in error.message
    assert possible in str(error.hint)
    assert field in error.fields


def test_data_of_a_higher_class_than_any_node_is_cleared_for_are_refused() -> None:
    error = refusal(JobRequest(SPEC), desk(data_class=2))
    assert "class 2" in error.message
    assert error.fields.keys() == {"project"}


def test_a_node_reserved_for_sensitive_data_refuses_other_data() -> None:
    kept = a_node("kept", data_class=3, min_data_class=2)
    refusal(JobRequest(SPEC), desk(kept))
    assert draft_job(desk(kept, data_class=2), JobRequest(SPEC)).project == "vision"


def test_a_node_without_clearance_is_not_reported_as_missing_gpus() -> None:
    error = refusal(JobRequest(SPEC, gpus=1), desk(BIG, a_node("cleared", data_class=3), data_class=2))
    assert error.message == "No node that accepts the project's data (class 2) has 1 GPU."
    assert error.fields.keys() == {"project"}


def test_a_node_without_gpu_sharing_is_not_reported_as_missing_gpus() -> None:
    t4 = tuple(type(one)(one.uuid, one.index, "T4", "T4", 16000) for one in a_node("small", gpus=2).devices)
    sharing = a_node("small", devices=t4, splits_devices=True)
    error = refusal(JobRequest(SPEC, gpus=0.5, gpu_type="A100"), desk(BIG, sharing))
    assert error.message == "The nodes with 1 A100 offer whole GPUs only."
    assert "Fractions are available of: T4." in str(error.hint)


def test_more_gpus_than_a_node_has_are_offered_as_tasks() -> None:
    two = BIG, a_node("other", cpus=16, memory_mib=64000, gpus=4)
    error = refusal(JobRequest(SPEC, gpus=8), desk(*two))
    assert "Several nodes together can run it: --tasks 2 --gpus 4" in str(error.hint)
    assert "--tasks" not in str(refusal(JobRequest(SPEC, gpus=8), desk()).hint)
    assert "--tasks" not in str(refusal(JobRequest(SPEC, gpus=9), desk(*two)).hint)


def test_without_nodes_every_request_is_refused() -> None:
    at = JobDraftContext(desk().user, "ann", (), {None: "vision"}, {}, NOW, None, 86400, 300.0)
    assert "no nodes" in refusal(JobRequest(SPEC), at).message


def test_a_grace_period_above_the_maximum_is_refused() -> None:
    refused = refusal(JobRequest(JobSpec(("x",), grace_seconds=3600)), desk())
    assert "300 seconds" in refused.message
    assert draft_job(desk(), JobRequest(JobSpec(("x",), grace_seconds=300))).spec.grace_seconds == 300


@pytest.mark.parametrize(
    ("most", "words"), [(90 * 86400, "90d"), (36 * 3600, "36h"), (5400, "90m"), (100, "100s")]
)
def test_the_maximum_time_limit_is_shown_with_a_unit(most: int, words: str) -> None:
    at = replace(desk(), max_time_limit_seconds=most)
    assert refusal(JobRequest(SPEC, time_limit_seconds=most + 1), at).message.endswith(f"is {words}.")
