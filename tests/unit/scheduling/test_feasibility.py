from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import PlacementRequest, Resources, TaskLayout
from heliostat.models.jobs import ALWAYS_PREEMPTIBLE_CLASSES, PRIORITY_CLASSES
from heliostat.scheduling.feasibility import (
    could_ever_run,
    count_tasks_on_node,
    count_tasks_that_fit,
    format_gpus,
    format_resources,
    fractions_per_device,
    has_labels,
)
from heliostat.scheduling.policy import DEFAULT_PRIORITY_CLASSES
from unit.scheduling.builders import a_node

ONE = Resources(1, 100, 1)


@pytest.mark.parametrize(
    ("wanted", "tasks"),
    [
        (Resources(1, 100), 8),
        (Resources(3, 100), 2),
        (Resources(1, 400), 2),
        (Resources(1, 100, 1), 4),
        (Resources(1, 100, 3), 1),
        (Resources(1, 100, 1, "a100"), 4),
        (Resources(1, 100, 1, "T4"), 0),
        (Resources(1, 100, 1, None, 80000), 4),
        (Resources(1, 100, 1, None, 80001), 0),
        (Resources(1, 100, 0.5), 0),
    ],
)
def test_an_empty_node_fits_as_many_tasks_as_its_scarcest_resource_allows(wanted: Resources, tasks: int) -> None:
    assert count_tasks_on_node(a_node(gpus=4), wanted) == tasks


@pytest.mark.parametrize(("part", "jobs"), [(0.5, 2), (0.33, 3), (0.1, 10), (0.35, 2), (0.05, 20), (0.6, 1)])
def test_fractions_of_a_gpu_are_counted_in_hundredths(part: float, jobs: int) -> None:
    assert fractions_per_device(part) == jobs


def test_only_a_node_that_shares_gpus_allocates_fractions() -> None:
    node = a_node(cpus=64, gpus=2, splits_devices=True)
    assert count_tasks_on_node(node, Resources(1, 10, 0.25)) == 8


def test_tasks_are_counted_over_all_nodes_and_spread_counts_each_node_once() -> None:
    nodes = [a_node("a", gpus=4), a_node("b", gpus=2), a_node("c")]
    assert count_tasks_that_fit(nodes, ONE, TaskLayout.PACK) == 6
    assert count_tasks_that_fit(nodes, ONE, TaskLayout.SPREAD) == 2
    assert could_ever_run(nodes, ONE, PlacementRequest(tasks=6))
    assert not could_ever_run(nodes, ONE, PlacementRequest(tasks=7))
    assert not could_ever_run(nodes, ONE, PlacementRequest(tasks=3, layout=TaskLayout.SPREAD))


def test_a_label_matches_any_value_or_the_requested_one() -> None:
    node = a_node(labels={"fast": "", "disk": "ssd"})
    assert has_labels(node, ("fast", "disk", "disk=ssd"))
    assert not has_labels(node, ("disk=hdd",))
    assert not has_labels(node, ("slow",))


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_nodes_accept_only_their_data_classes(data_class: int, cleared: int, kept: int) -> None:
    node = a_node(data_class=cleared, min_data_class=kept)
    assert could_ever_run([node], Resources(1, 1), PlacementRequest(), data_class) == (
        kept <= data_class <= cleared
    )


def test_drained_nodes_count_as_feasible() -> None:
    assert could_ever_run([replace(a_node(gpus=1), reason="new disk")], ONE, PlacementRequest())


def test_requested_resources_are_formatted() -> None:
    assert format_resources(Resources(1, 100, 2, "A100")) == "2 A100, 1 CPU and 100 MiB"
    assert format_gpus(0.5, None) == "0.5 GPU"
    assert format_gpus(2, None, 40960) == "2 GPUs with at least 40 GiB"


def test_the_policy_has_a_rule_for_each_class_and_no_other() -> None:
    assert tuple(DEFAULT_PRIORITY_CLASSES) == PRIORITY_CLASSES
    assert {
        name for name, rule in DEFAULT_PRIORITY_CLASSES.items() if rule.preemptible
    } == ALWAYS_PREEMPTIBLE_CLASSES
