from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.simulated.cluster import DEVICE_MODELS, demo_nodes, device_under_load, parse_nodes
from heliostat.errors import Invalid
from heliostat.models import Attempt, Job, JobSpec, JobState, Resources


def test_text_becomes_nodes_with_devices_of_the_type() -> None:
    nodes = parse_nodes("8x8xA100, 2x4xt4, 3xcpu")
    assert Counter(node.name.rsplit("-", 1)[0] for node in nodes) == {"a100": 8, "t4": 2, "cpu": 3}
    assert [len(node.devices) for node in nodes] == [8] * 8 + [4] * 2 + [0] * 3
    assert {device.type for node in nodes for device in node.devices} == {"A100", "T4"}


def test_a_second_group_of_a_type_is_numbered_on() -> None:
    assert [node.name for node in parse_nodes("1x4xT4,1x2xT4")] == ["t4-01", "t4-02"]


@given(
    groups=st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 16), st.sampled_from(sorted(DEVICE_MODELS))), min_size=1
    )
)
def test_names_and_devices_are_unique_and_none_is_missing(groups: list[tuple[int, int, str]]) -> None:
    nodes = parse_nodes(", ".join(f"{count}x{gpus}x{kind}" for count, gpus, kind in groups))
    uuids = [device.uuid for node in nodes for device in node.devices]
    assert len(nodes) == len({node.name for node in nodes}) == sum(count for count, _, _ in groups)
    assert len(uuids) == len(set(uuids)) == sum(count * gpus for count, gpus, _ in groups)


@pytest.mark.parametrize(
    "text", ["", "A100", "0x8xA100", "8x0xA100", "8x17xA100", "2x4xA100,", "2x4xQ9", "99999xcpu", "-1xcpu"]
)
def test_what_cannot_be_nodes_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_nodes(text)
    assert refusal.value.hint


def test_the_demo_cluster_has_the_size_we_say_it_has() -> None:
    nodes = demo_nodes()
    assert len(nodes) == len({node.name for node in nodes}) == 40
    assert sum(len(node.devices) for node in nodes) == 100
    assert sum(node.cpus for node in nodes) == 788
    assert {device.type for node in nodes for device in node.devices} == {"A100", "V100", "RTX-3090", "T4"}
    assert any(not node.devices for node in nodes)


def test_the_demo_cluster_is_the_same_each_time() -> None:
    assert demo_nodes() == demo_nodes()


@given(number=st.integers(1, 10**6), seconds=st.floats(0, 10**7))
def test_a_device_at_work_looks_believable_and_the_same_each_time(number: int, seconds: float) -> None:
    device = demo_nodes()[0].devices[0]
    attempt = _attempt(number)
    busy = device_under_load(device, attempt, seconds)
    assert busy == device_under_load(device, attempt, seconds)
    assert busy.utilisation is not None
    assert busy.temperature is not None
    assert 0 <= busy.utilisation <= 100
    assert 25 <= busy.temperature <= 90
    assert 0 < busy.memory_used_mib <= busy.memory_mib
    assert busy.processes[0].user == "ada"
    assert busy.power_watts is not None
    assert 50 <= busy.power_watts <= 350
    changing = ("memory_used_mib", "utilisation", "temperature", "power_watts", "processes")
    idle_fields = {name: getattr(device, name) for name in changing}
    assert replace(busy, **idle_fields) == device


def _attempt(number: int) -> Attempt:
    job = Job(
        id=number,
        kind="batch",
        name="train",
        state=JobState.RUNNING,
        user="ada",
        unix_user="ada",
        project="engines",
        resources=Resources(gpus=1),
        spec=JobSpec(command=("python", "train.py")),
        submitted_at=None,  # type: ignore[arg-type]
    )
    return Attempt(f"{number}.1", job, "a100-01")
