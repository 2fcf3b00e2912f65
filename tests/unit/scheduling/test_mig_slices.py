"""MIG slices: devices of their own kind, which count as a part of a card."""

from dataclasses import replace
from datetime import timedelta

import pytest

from heliostat.models import Device, Job, Node, PlacementRequest, Quota, Reservation, Resources
from heliostat.scheduling.node_table import NodeTable
from heliostat.scheduling.policy import ChargeRates
from heliostat.scheduling.quotas import count_occupied_gpus
from heliostat.scheduling.request_variations import list_variations
from heliostat.scheduling.share_accounts import ShareAccounts
from unit.scheduling.builders import NOW, a_job, a_node, a_plan, a_queue_state, a_running_job, started

HOUR = 3600
SLICE = Resources(1, 10, 1, "a100-1g.10gb")
WHOLE = Resources(1, 10, 1)


def split_node(name: str = "a", whole: int = 1, slices: int = 7, **fields: object) -> Node:
    node = a_node(name, cpus=32, gpus=whole, **fields)
    more = (
        Device(
            f"{name}-mig-{at}", whole, "A100-1g.10gb", "A100 MIG", 9728, slice_index=at, card_uuid=f"{name}-card"
        )
        for at in range(slices)
    )
    return replace(node, devices=(*node.devices, *more))


def starts(node: Node, *jobs: Job, **more: object) -> dict[int, tuple[str, ...]]:
    made = a_plan(a_queue_state((node,), jobs, **more))  # type: ignore[arg-type]
    return {start.job.id: start.devices for start in made.starts}


def test_a_job_that_names_no_type_never_gets_a_slice() -> None:
    jobs = [a_job(number, WHOLE) for number in (1, 2)]
    assert starts(split_node(), *jobs) == {1: ("a-0",)}
    assert starts(split_node(whole=0), *jobs) == {}
    assert starts(split_node(whole=0), a_job(1, replace(WHOLE, gpu_memory_mib=9000))) == {}


def test_a_job_that_names_the_type_gets_a_slice() -> None:
    made = a_plan(a_queue_state((split_node(),), [a_job(1, SLICE), a_job(2, replace(SLICE, gpus=2))]))
    assert {start.job.id: start.devices for start in made.starts} == {
        1: ("a-mig-0",),
        2: ("a-mig-1", "a-mig-2"),
    }
    assert made.starts[0].gpu_type == "A100-1g.10gb"


def test_slices_are_not_shared_between_jobs() -> None:
    assert starts(split_node(whole=0, splits_devices=True), a_job(1, replace(SLICE, gpus=0.5))) == {}


@pytest.mark.parametrize(
    ("listed", "gpu_type", "charge"),
    [
        ({}, "A100-1g.10gb", 1 / 7),
        ({"a100": 2.0}, "A100-1g.10gb", 2 / 7),
        ({"a100": 2.0}, "A100-3g.40gb", 6 / 7),
        ({"a100": 2.0, "a100-1g.10gb": 0.5}, "A100-1g.10gb", 0.5),
        ({"a100": 2.0}, "1g.10gb", 1 / 7),  # in Slurm; the card is unknown
        ({"a100": 2.0}, "A100", 2),
        ({"a100": 2.0}, None, 1),
    ],
)
def test_a_slice_is_charged_for_its_part_of_the_card_unless_it_is_listed(
    listed: dict[str, float], gpu_type: str | None, charge: float
) -> None:
    assert ChargeRates(listed).gpu_charge(gpu_type) == pytest.approx(charge)


def test_the_slices_of_a_card_are_charged_like_the_card() -> None:
    charges = ChargeRates({"a100": 2.0}, cpu=0, memory_gib=0)
    assert NodeTable((split_node(whole=0),)).hourly_charge(charges) == pytest.approx(2)


def test_an_exclusive_job_on_a_slice_occupies_all_cards_of_the_node() -> None:
    node = split_node(whole=1)
    job = a_running_job(1, "a", SLICE, devices=("a-mig-0",), placement=PlacementRequest(exclusive=True))
    assert count_occupied_gpus(job, NodeTable((node,)), ShareAccounts()) == pytest.approx(2)
    (row,) = a_queue_state((node,), [job]).snapshot(NOW).running
    assert row["gpus"] == pytest.approx(2)
    assert row["rate"] * HOUR == pytest.approx(2 + 0.02 + 0.002 * 10 / 1024)


def test_a_quota_of_gpus_counts_slices_as_their_part_of_a_card() -> None:
    accounts = ShareAccounts(user_quotas={"ann": Quota(running_gpus=1)})
    jobs = [a_job(number, SLICE) for number in range(1, 8)]
    assert len(starts(split_node(whole=1), *jobs, accounts=accounts)) == 7
    whole = a_job(8, WHOLE)
    assert starts(split_node(whole=1), *jobs[:1], whole, accounts=accounts) == {1: ("a-mig-0",)}


def test_reserved_gpus_are_whole_cards() -> None:
    reservation = Reservation(
        "course", ("a",), NOW - timedelta(hours=1), NOW + timedelta(hours=4), project="course", gpus_per_node=1
    )
    jobs = [a_job(1, WHOLE), a_job(2, WHOLE), *(a_job(number, SLICE) for number in range(3, 10))]
    found = starts(split_node(whole=2), *jobs, reservations=(reservation,))
    assert set(found) == {1, *range(3, 10)}
    own_slice = a_running_job(20, "a", SLICE, devices=("a-mig-0",), project="course", time_limit_seconds=9 * HOUR)
    assert set(starts(split_node(whole=2), own_slice, *jobs[:2], reservations=(reservation,))) == {1}


def test_a_smaller_request_is_never_a_slice_and_a_slice_never_becomes_a_card() -> None:
    nodes = (split_node(whole=4),)
    assert all(one.change.get("gpu_type", "") == "" for one in list_variations(a_job(1, SLICE), nodes))
    two = a_job(1, Resources(8, 10, 2, "A100"))
    (any_type,) = [one for one in list_variations(two, nodes) if "gpu_type" in one.change]
    assert any_type.job.resources.gpu_type is None


def test_a_slice_that_vanishes_under_a_job_frees_nothing() -> None:
    job = a_running_job(1, "a", SLICE, devices=("a-mig-gone",))
    assert started(a_plan(a_queue_state((split_node(),), [job, a_job(2, SLICE)]))) == {2: ("a",)}
