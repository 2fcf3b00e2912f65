from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from heliostat.models import Device, JobState, Node, NodeState
from heliostat.services.cluster.overview import DeviceCondition, DeviceStatus, JobOnNode, NodeStatus
from heliostat.web.heatmap import (
    CONDITION_MEANINGS,
    build_heatmap_cell,
    build_heatmap_node,
    cell_size,
    describe_device,
)

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
DEVICE = Device("u0", 0, "A100", "NVIDIA A100", 81920, memory_used_mib=40960, utilisation=83)
TENANT = JobOnNode(
    job_id=12,
    user="ann",
    project="vision",
    name="train",
    state=JobState.RUNNING,
    gpus=1,
    cpus=4,
    memory_mib=1024,
    started_at=NOW - timedelta(hours=2),
    ends_at=NOW + timedelta(hours=3),
    inspectable=True,
)


def seen(
    condition: DeviceCondition, *tenants: JobOnNode, device: Device = DEVICE, **node: object
) -> tuple[NodeStatus, DeviceStatus]:
    one = DeviceStatus(device, condition, tenants)
    made = replace(Node("n 1/<b>", 8, 8192, (device,)), **node)  # type: ignore[arg-type]
    return NodeStatus(made, (one,), tenants, ()), one


def test_a_label_says_what_it_is_who_is_on_it_and_for_how_much_longer() -> None:
    assert describe_device(*seen(DeviceCondition.BUSY, TENANT), NOW).split("\n") == [
        "n 1/<b>, GPU 0: busy",
        "A100, 83% used, 40 GiB of 80 GiB memory",
        "ann (vision): job 12 train, for 2 h, at most 3 h left",
    ]


def test_names_of_other_peoples_jobs_are_not_told() -> None:
    said = describe_device(*seen(DeviceCondition.BUSY, replace(TENANT, name=None)), NOW)
    assert "job 12, for 2 h" in said
    assert "train" not in said


def test_many_tenants_of_one_device_are_counted() -> None:
    assert describe_device(*seen(DeviceCondition.BUSY, *[TENANT] * 7), NOW).endswith("\nand 3 jobs more")


def test_a_tenant_that_has_not_begun_or_has_no_limit_says_so() -> None:
    starting = replace(TENANT, state=JobState.STARTING, started_at=None, ends_at=None)
    assert describe_device(*seen(DeviceCondition.BUSY, starting), NOW).endswith("train, starting")
    late = replace(TENANT, started_at=NOW, ends_at=NOW - timedelta(seconds=1))
    assert describe_device(*seen(DeviceCondition.BUSY, late), NOW).endswith(
        "just started, time limit almost reached"
    )


@pytest.mark.parametrize(
    ("condition", "device", "node", "words"),
    [
        (DeviceCondition.FAULTY, {"problem": "fell off the bus"}, {}, "fell off the bus"),
        (DeviceCondition.FAULTY, {}, {"state": NodeState.DOWN}, "the node is down"),
        (DeviceCondition.FOREIGN, {"used_outside": "process 7 of bob"}, {}, "process 7 of bob"),
        (DeviceCondition.DRAINED, {}, {"state": NodeState.DRAINED, "reason": "new fan"}, "drained: new fan"),
        (DeviceCondition.IDLE, {}, {}, "hardly used in the last ten minutes"),
    ],
)
def test_what_is_wrong_is_said(
    condition: DeviceCondition, device: dict[str, str], node: dict[str, object], words: str
) -> None:
    assert words in describe_device(*seen(condition, device=replace(DEVICE, **device), **node), NOW)  # type: ignore[arg-type]


def test_a_cell_shows_use_and_memory_in_tenths_and_leads_to_its_device() -> None:
    shown = build_heatmap_cell(*seen(DeviceCondition.BUSY, TENANT), NOW)
    assert (shown.css_classes, shown.top_text, shown.bottom_text) == ("busy u8 m5", "83%", "40 GiB")
    assert shown.href == "/cluster/n%201%2F%3Cb%3E#gpu-0"


def test_a_free_cell_shows_how_much_memory_there_is() -> None:
    shown = build_heatmap_cell(*seen(DeviceCondition.FREE), NOW)
    assert (shown.css_classes, shown.top_text, shown.bottom_text) == ("free", "", "80 GiB")


def test_what_the_driver_does_not_tell_is_a_dash_and_not_nothing() -> None:
    bare = replace(DEVICE, utilisation=None, memory_mib=0, memory_used_mib=0)
    shown = build_heatmap_cell(*seen(DeviceCondition.BUSY, TENANT, device=bare), NOW)
    assert shown.top_text == "\N{EN DASH}"
    assert shown.css_classes == "busy u0 m0"


def test_a_node_that_is_not_up_says_why() -> None:
    node, one = seen(DeviceCondition.DRAINED, state=NodeState.DRAINED, reason="new fan")
    assert build_heatmap_node(node, [one], NOW).state_text == "drained: new fan"
    node, one = seen(DeviceCondition.FREE)
    assert build_heatmap_node(node, [one], NOW).state_text == ""


def test_every_condition_has_a_meaning_in_the_legend() -> None:
    assert set(CONDITION_MEANINGS) == set(DeviceCondition)


def test_cells_get_smaller_the_more_there_are() -> None:
    assert [cell_size(count) for count in (1, 8, 100, 3200)] == ["large", "large", "medium", "small"]
