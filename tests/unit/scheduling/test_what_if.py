"""What-if estimates: changed requests that would start earlier."""

from datetime import timedelta

from heliostat.models import Job, PlacementRequest, Resources, TaskLayout
from heliostat.scheduling.queue_state import PastUsage, QueueState
from heliostat.scheduling.request_variations import list_variations
from heliostat.scheduling.what_if import EarlierStartOption, WhatIfRequest, find_earlier_options, forecast_request
from unit.scheduling.builders import NOW, a_job, a_node, a_queue_state, a_running_job

HOUR = 3600


def asked(board: QueueState, job: Job) -> dict[str, EarlierStartOption]:
    question = WhatIfRequest(board, job, NOW)
    return {option.description: option for option in find_earlier_options(question, forecast_request(question))}


def running(number: int, node: str, gpus: int, hours: int, first: int = 0) -> Job:
    devices = tuple(f"{node}-{index}" for index in range(first, first + gpus))
    return a_running_job(number, node, Resources(gpus, 10, gpus), devices=devices, time_limit_seconds=hours * HOUR)


def test_fewer_gpus_that_are_free_would_start_now() -> None:
    board = a_queue_state((a_node("a", gpus=4),), [running(1, "a", 2, 8)])
    found = asked(board, a_job(9, Resources(4, 40, 4), time_limit_seconds=HOUR))
    assert found["2 GPUs"].starts_now
    assert found["2 GPUs"].change == {"gpus": 2, "cpus": 2, "memory": 20}
    assert found["1 GPU"].starts_now


def test_a_job_that_starts_now_gets_no_options() -> None:
    board = a_queue_state((a_node("a", gpus=4),), [])
    assert asked(board, a_job(9, Resources(4, 40, 4), time_limit_seconds=HOUR)) == {}


def test_the_longest_time_limit_that_allows_backfill_is_found() -> None:
    blocked = a_job(2, Resources(4, 40, 4), time_limit_seconds=HOUR, submitted_at=NOW - timedelta(days=9))
    board = a_queue_state((a_node("a", gpus=4),), [running(1, "a", 2, 5), blocked])
    found = asked(board, a_job(9, Resources(1, 10, 1), time_limit_seconds=24 * HOUR))
    assert found["at most 4h"].starts_now
    assert "at most 2h" not in found


def test_another_type_of_gpu_is_named_when_it_is_earlier() -> None:
    other = a_node("b", gpus=1)
    other_type = tuple(type(one)(one.uuid, one.index, "T4", "T4", 16000) for one in other.devices)
    nodes = (a_node("a", gpus=1), a_node("b", gpus=1, devices=other_type))
    board = a_queue_state(nodes, [running(1, "a", 1, 8)])
    found = asked(board, a_job(9, Resources(1, 10, 1, "A100"), time_limit_seconds=HOUR))
    assert found["any GPU type"].starts_now
    assert found["any GPU type"].change == {"gpu_type": None}


def test_only_earlier_options_are_listed_and_the_earliest_is_first() -> None:
    board = a_queue_state((a_node("a", gpus=4),), [running(1, "a", 1, 2), running(2, "a", 2, 8, first=1)])
    question = WhatIfRequest(board, a_job(9, Resources(4, 40, 4), time_limit_seconds=HOUR), NOW)
    so_far = forecast_request(question)
    options = find_earlier_options(question, so_far)
    assert [option.description for option in options] == ["1 GPU", "2 GPUs"]
    assert so_far is not None
    assert all(option.forecast.likely_at < so_far.likely_at for option in options)


def test_another_gpu_type_may_have_fewer_cpus_and_less_memory() -> None:
    job = a_job(9, Resources(8, 800, 1, "A100"))
    small = a_node("b", cpus=4, memory_mib=600, gpus=2)
    found = next(one for one in list_variations(job, [a_node("a", gpus=1), small]) if "type" in one.description)
    assert found.description == "any GPU type with 2 CPUs and 300 MiB"
    assert found.change == {"gpu_type": None, "cpus": 2, "memory": 300}


def test_every_field_of_a_large_request_has_a_variation() -> None:
    placement = PlacementRequest(tasks=4, layout=TaskLayout.SPREAD, exclusive=True)
    job = a_job(9, Resources(8, 80, 4, "A100", 40000), placement=placement)
    assert [one.description for one in list_variations(job, ())] == [
        "2 A100 with at least 39.1 GiB",
        "1 A100 with at least 39.1 GiB",
        "any GPU type",
        "any GPU memory",
        "2 tasks",
        "layout pack",
        "not exclusive",
        "class scavenger",
    ]


def test_the_queue_state_is_not_changed() -> None:
    board = a_queue_state((a_node("a", gpus=4),), [running(1, "a", 2, 8)])
    asked(board, a_job(9, Resources(4, 40, 4), time_limit_seconds=HOUR))
    assert board.jobs.keys() == {1}


def test_a_scavenger_gets_the_option_of_class_normal() -> None:
    ahead = [a_job(number, Resources(1, 10, 4), time_limit_seconds=8 * HOUR) for number in (2, 3)]
    board = a_queue_state((a_node("a", gpus=4),), [running(1, "a", 4, 1), *ahead])
    idle = a_job(9, Resources(1, 10, 1), time_limit_seconds=HOUR, priority_class="scavenger", preemptible=True)
    option = asked(board, idle)["class normal"]
    assert option.change == {"priority_class": "normal"}


def test_an_urgent_job_without_budget_gets_the_option_of_class_normal() -> None:
    board = a_queue_state((a_node("a", gpus=4),), [])
    hour_ago = NOW.timestamp() - HOUR
    board.add_past_usage([PastUsage("ann", "default", "urgent", hour_ago, NOW.timestamp(), 0.0, 100.0)], NOW)
    job = a_job(9, Resources(1, 10, 1), time_limit_seconds=HOUR, priority_class="urgent")
    assert asked(board, job)["class normal"].starts_now


def test_only_a_job_that_requested_it_stays_preemptible_in_another_class() -> None:
    idle = a_job(9, priority_class="scavenger", preemptible=True)
    assert {one.job.preemptible for one in list_variations(idle, ()) if one.description == "class normal"} == {
        False
    }
    willing = a_job(9, priority_class="urgent", preemptible=True)
    assert {one.job.preemptible for one in list_variations(willing, ()) if one.description == "class normal"} == {
        True
    }
