"""Who stands ready behind whom."""

from datetime import timedelta

import pytest

from heliostat.models import Job, Place
from heliostat.scheduling.lanes import PATIENCE_SECONDS, Lanes
from heliostat.scheduling.relay import Relay
from heliostat.scheduling.snapshot import Start
from unit.scheduling.made_up import NOW, a_job


def lanes_that_know(seconds: float, times: int = 12) -> Lanes:
    lanes = Lanes()
    for _ in range(times):
        lanes.note_end(NOW, NOW + timedelta(seconds=seconds))
    return lanes


def a_line(first: int, count: int) -> Relay:
    return Relay(NOW, [a_job(number) for number in range(first, first + count)], {"a"})


def starting(*numbers: int) -> list[Start]:
    return [Start(a_job(number), (Place("a", ()),)) for number in numbers]


def fill(
    lanes: Lanes, relay: Relay, starts: list[Start], now: float = 0.0, *, others_run: bool = True
) -> dict[str, list[Job]]:
    """As the controller does: those who were found stand there from then on."""
    found = lanes.fill(relay, starts, now, others_run=others_run)
    for behind, jobs in found:
        for job in jobs:
            lanes.stand(f"{job.id}.1", behind)
            behind = f"{job.id}.1"  # noqa: PLW2901 - each stands behind the one before
    return dict(found)


@pytest.mark.parametrize(("seconds", "times"), [(0.01, 11), (0.2, 12)])
def test_nobody_stands_ready_until_a_dozen_were_short(seconds: float, times: int) -> None:
    assert fill(lanes_that_know(seconds, times), a_line(10, 100), starting(1)) == {}


def test_behind_one_that_starts_stand_only_some_and_the_others_once_it_runs() -> None:
    lanes, relay = lanes_that_know(0.001), a_line(10, 500)
    first = fill(lanes, relay, starting(1, 2))
    assert [len(jobs) for jobs in first.values()] == [20, 20]
    assert sum(map(len, fill(lanes, relay, []).values())) == 40
    assert lanes.waiting == 80
    assert fill(lanes, relay, []) == {}, "they are as long as they may be"


def test_longer_jobs_make_shorter_lanes() -> None:
    assert [len(jobs) for jobs in fill(lanes_that_know(0.045), a_line(10, 500), starting(1)).values()] == [4]


def test_half_of_those_who_wait_stay_for_other_places() -> None:
    lanes, relay = lanes_that_know(0.001), a_line(10, 8)
    assert sum(map(len, fill(lanes, relay, starting(1, 2)).values())) < 8
    assert relay.waiting >= 2


def test_all_of_them_stand_ready_where_every_place_is_a_lane() -> None:
    lanes, relay = lanes_that_know(0.001), a_line(10, 8)
    assert [len(jobs) for jobs in fill(lanes, relay, starting(1, 2), others_run=False).values()] == [4, 4]
    assert relay.waiting == 0


def test_a_lane_where_somebody_runs_long_keeps_its_part_of_those_who_wait() -> None:
    lanes, relay = lanes_that_know(0.001), a_line(10, 8)
    fill(lanes, a_line(30, 2), starting(1, 2), others_run=False)
    lanes.close_behind("1.1")
    for _ in range(3):
        fill(lanes, relay, [], others_run=False)
    assert relay.waiting == 4


def test_who_ends_is_followed_by_the_next_and_the_last_leaves_an_empty_place() -> None:
    lanes, relay = lanes_that_know(0.045), a_line(10, 500)
    fill(lanes, relay, starting(1))
    assert lanes.end(["1.1", "10.1"], 1.0) == (set(), [])
    gone, empty = lanes.end(["11.1", "12.1", "13.1"], 1.0)
    assert gone == {"11.1", "12.1", "13.1"}
    assert [job.node for job in empty] == ["a"]
    assert lanes.waiting == 0


def test_those_behind_one_that_runs_for_long_are_given_back_once() -> None:
    lanes, relay = lanes_that_know(0.045), a_line(10, 500)
    fill(lanes, relay, starting(1))
    assert lanes.close(PATIENCE_SECONDS / 2, relay) == []
    assert lanes.close(PATIENCE_SECONDS * 2, relay) == ["10.1", "11.1", "12.1", "13.1"]
    assert lanes.close(PATIENCE_SECONDS * 2, relay) == []
    assert fill(lanes, relay, [], PATIENCE_SECONDS * 2) == {}
