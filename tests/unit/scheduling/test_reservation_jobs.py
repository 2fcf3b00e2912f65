"""Jobs that run inside a reservation."""

from dataclasses import replace
from datetime import datetime, timedelta

from heliostat.controller.synced_queue import SyncedQueue
from heliostat.models import Job, PlacementRequest, Reservation, Resources
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.share_accounts import ShareAccounts
from unit.scheduling.builders import NOW, a_job, a_node, a_plan, started

HOUR = timedelta(hours=1)
NODES = (a_node("a", gpus=2), a_node("b", gpus=2))
COURSE = Reservation("course", ("b",), NOW + HOUR, NOW + 3 * HOUR, project="teaching")


def inside(number: int, gpus: float = 1, **fields: object) -> Job:
    place = PlacementRequest(reservation="course")
    return a_job(number, Resources(1, 10, gpus), placement=place, project="teaching", **fields)


class Line:
    """A queue, and what would start at a time."""

    def __init__(self, *jobs: Job, reservations: tuple[Reservation, ...] = (COURSE,)) -> None:
        self.queue = SyncedQueue(QueueState(SchedulingPolicy()), jobs, NOW)
        self.reservations = reservations

    def starts_at(self, now: datetime) -> dict[int, tuple[str, ...]]:
        reservations = tuple(one for one in self.reservations if one.final_end_at > now)
        self.queue.update_cluster(NODES, ShareAccounts(), reservations, now)
        return started(a_plan(self.queue.state, now))

    def words(self, job: Job, now: datetime) -> str | None:
        return self.queue.explain_ineligible(job, now)


def test_a_job_waits_for_its_reservation_and_runs_on_its_nodes_only() -> None:
    line = Line(*(inside(number) for number in (1, 2, 3)))
    assert line.starts_at(NOW) == {}
    assert line.queue.state.next_begin_at() == NOW + HOUR
    assert line.words(inside(1), NOW) == "waits for the reservation course, which begins at 2026-03-01 13:00 UTC"
    assert line.starts_at(NOW + HOUR) == {1: ("b",), 2: ("b",)}
    assert line.words(inside(3), NOW + HOUR) is None


def test_other_jobs_are_neither_delayed_by_it_nor_admitted() -> None:
    other = a_job(9, Resources(1, 10, 2), time_limit_seconds=3600 * 9)
    line = Line(inside(1), other, replace(other, id=10))
    assert line.starts_at(NOW) == {9: ("a",)}
    assert line.starts_at(NOW + HOUR) == {1: ("b",), 9: ("a",)}


def test_a_job_whose_reservation_has_ended_or_was_deleted_waits_with_a_reason() -> None:
    line = Line(inside(1))
    assert set(line.starts_at(NOW + HOUR)) == {1}
    line.reservations = ()
    assert line.starts_at(NOW + HOUR) == {}
    assert "has ended or was deleted" in (line.words(inside(1), NOW + HOUR) or "")
    line.reservations = (COURSE,)
    assert set(line.starts_at(NOW + HOUR)) == {1}
    assert line.starts_at(NOW + 4 * HOUR) == {}


def test_a_weekly_reservation_opens_again() -> None:
    week = timedelta(weeks=1)
    line = Line(inside(1), reservations=(replace(COURSE, weeks=2),))
    assert line.starts_at(NOW + 4 * HOUR) == {}
    assert line.queue.state.next_begin_at() == NOW + week + HOUR
    assert set(line.starts_at(NOW + week + HOUR)) == {1}


def test_a_reservation_of_the_same_name_of_another_project_does_not_count() -> None:
    line = Line(inside(1), reservations=(replace(COURSE, project="other"),))
    assert line.starts_at(NOW + HOUR) == {}
