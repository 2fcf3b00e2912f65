"""Firing of schedules: once per due time with any clock, with the owner's permissions."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from heliostat.api.validation import read_job
from heliostat.errors import Conflict, Forbidden, HeliostatError, Invalid, NotFound, StoreUnavailable
from heliostat.models import Caller, Job, JobState
from heliostat.models.schedules import CatchUpMode, Firing, FiringState, OverlapPolicy, Schedule, ScheduleState
from heliostat.services.accounts.projects import ProjectOrDepartmentChange, update_project
from heliostat.services.accounts.users import UserChange, update_user
from heliostat.services.schedules import lifecycle as services
from heliostat.services.schedules.firing import ReconcileTrigger, reconcile_schedules
from heliostat.services.schedules.schedule_requests import ScheduleRequest
from heliostat.store import firings as fired
from heliostat.store import job_writes
from heliostat.store import jobs as stored_jobs
from heliostat.store.database import Transaction
from unit.auth.stand_ins import ALICE, FakeUnix
from unit.services.site import Site

EVERYTHING = ReconcileTrigger(None, was_clock_set_back=True)
HOURLY = "R/2026-03-01T00:00:00Z/PT1H"


class FakeController:
    def count_unfinished_jobs(self, user: str) -> int:
        return 0


@pytest.fixture(autouse=True)
def _controller(site: Site) -> None:
    site.context.controller = FakeController()  # type: ignore[misc,assignment]


def wish(
    name: str = "nightly", timing: str | None = HOURLY, job: dict[str, Any] | None = None, **fields: Any
) -> ScheduleRequest:
    return ScheduleRequest(name, read_job({"command": "true", **(job or {})}), timing, **fields)


def person(site: Site, name: str) -> Caller:
    """In the project vision, with a Unix user of the same name."""
    caller = site.person(name, "vision")
    return replace(caller, user=update_user(site.context, site.root, name, UserChange(unix_user=name)))


def create(site: Site, *args: Any, caller: Caller | None = None, **fields: Any) -> Schedule:
    return services.create_schedule(site.context, caller or site.root, wish(*args, **fields))


def now(site: Site, schedule: Schedule) -> Schedule:
    return services.get_schedule(site.context, site.root, str(schedule.id))


def firings(site: Site, schedule: Schedule) -> list[Firing]:
    return list(reversed(services.list_firings(site.context, schedule, 10_000)))


def states(site: Site, schedule: Schedule) -> list[str]:
    return [one.state.value for one in firings(site, schedule)]


def job(site: Site, firing: Firing) -> Job:
    with site.context.store.read() as conn:
        found = stored_jobs.get_job(conn, firing.job_id or 0)
    assert found is not None
    return found


def end(site: Site, schedule: Schedule, state: JobState = JobState.COMPLETED) -> None:
    """End all its unfinished jobs with this state."""

    def change(tx: Transaction) -> None:
        for firing in fired.list_unfinished_firings(tx.conn, schedule.id):
            for number in range(firing.job_id or 0, (firing.last_job_id or 0) + 1):
                job_writes.update_job(
                    tx, number, {"state": state, "ended_at": site.clock.at, "reason": "by the test"}
                )

    site.context.store.write(change)
    reconcile_schedules(site.context, ReconcileTrigger(None))


def test_it_fires_when_it_is_due_and_not_before(site: Site) -> None:
    site.clock.turn(minutes=30)
    schedule = create(site)
    assert reconcile_schedules(site.context, EVERYTHING) == datetime(2026, 3, 1, 13, tzinfo=UTC)
    assert firings(site, schedule) == []
    site.clock.turn(minutes=30)
    assert reconcile_schedules(site.context, ReconcileTrigger()) == datetime(2026, 3, 1, 14, tzinfo=UTC)
    (firing,) = firings(site, schedule)
    made = job(site, firing)
    assert (made.name, made.user, made.state) == ("nightly", "root", JobState.PENDING)
    assert made.spec.env == {"HELIOSTAT_SCHEDULE": "nightly", "HELIOSTAT_DUE_AT": "2026-03-01T13:00:00Z"}
    reconcile_schedules(site.context, EVERYTHING)
    assert len(firings(site, schedule)) == 1


def test_a_schedule_that_starts_now_fires_at_once_and_finishes(site: Site) -> None:
    schedule = create(site, timing="R1/PT10S")
    assert reconcile_schedules(site.context, EVERYTHING) is None
    assert states(site, schedule) == ["running"]
    assert now(site, schedule).state is ScheduleState.FINISHED


def test_a_schedule_of_a_closed_project_is_paused_and_says_why(site: Site) -> None:
    schedule = create(site)
    close = ProjectOrDepartmentChange(closes_at=site.clock() + timedelta(minutes=90))
    update_project(site.context, site.root, "default", close)
    for _ in range(4):
        site.clock.turn(hours=1)
        reconcile_schedules(site.context, EVERYTHING)
    assert states(site, schedule)[-1] == "refused"
    assert "project default is closed since" in (firings(site, schedule)[-1].reason or "")
    stopped = now(site, schedule)
    assert (stopped.state, stopped.next_at) == (ScheduleState.PAUSED, None)
    assert states(site, schedule).count("refused") == 1


def test_it_ends_after_the_given_number_of_firings(site: Site) -> None:
    schedule = create(site, ends_after=2, overlap=OverlapPolicy.ALLOW)
    assert len(services.next_times(site.context, schedule, 10)) == 2
    for _ in range(4):
        reconcile_schedules(site.context, EVERYTHING)
        site.clock.turn(hours=1)
    assert len(firings(site, schedule)) == 2
    assert now(site, schedule).state is ScheduleState.FINISHED


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [("skip", ["running", "skipped"]), ("allow", ["running"] * 2), ("queue", ["running"] * 2)],
)
def test_the_overlap_policy_applies_while_an_earlier_job_has_not_ended(
    site: Site, overlap: str, expected: list[str]
) -> None:
    schedule = create(site, overlap=OverlapPolicy(overlap))
    reconcile_schedules(site.context, EVERYTHING)
    site.clock.turn(hours=1)
    reconcile_schedules(site.context, ReconcileTrigger())
    assert states(site, schedule) == expected
    second = firings(site, schedule)[1]
    if overlap == "skip":
        assert second.reason == "job 1 of an earlier firing has not ended"
    else:
        assert [one.parent_id for one in job(site, second).after] == ([1] if overlap == "queue" else [])


def test_the_job_that_is_replaced_is_cancelled_and_the_new_one_waits_for_its_end(site: Site) -> None:
    schedule = create(site, overlap=OverlapPolicy.REPLACE)
    reconcile_schedules(site.context, EVERYTHING)
    site.clock.turn(hours=1)
    reconcile_schedules(site.context, ReconcileTrigger())
    first, second = firings(site, schedule)
    assert job(site, first).state is JobState.CANCELLED
    assert job(site, second).parents_left == 0
    reconcile_schedules(site.context, ReconcileTrigger(None))
    assert states(site, schedule) == ["cancelled", "running"]


@pytest.mark.parametrize(
    ("rule", "epsilon", "fired_at", "missed"),
    [
        (CatchUpMode.NONE, None, [], 5),
        (CatchUpMode.LAST, None, [17], 4),
        (CatchUpMode.LAST, 600, [], 5),
        (CatchUpMode.ALL, None, [13, 14, 15, 16, 17], 0),
        (CatchUpMode.ALL, 9000, [16, 17], 3),
    ],
)
def test_the_catch_up_mode_decides_which_missed_times_are_fired(
    site: Site, rule: CatchUpMode, epsilon: int | None, fired_at: list[int], missed: int
) -> None:
    site.clock.turn(minutes=1)
    schedule = create(site, overlap=OverlapPolicy.ALLOW, catch_up=rule, epsilon_seconds=epsilon)
    site.clock.turn(hours=5, minutes=30)
    reconcile_schedules(site.context, EVERYTHING)
    found = firings(site, schedule)
    assert [one.due_at.hour for one in found if one.state is FiringState.RUNNING] == fired_at
    assert sum(one.count for one in found if one.state is FiringState.MISSED) == missed
    assert now(site, schedule).next_at == datetime(2026, 3, 1, 18, tzinfo=UTC)


def test_a_firing_one_minute_late_is_not_missed(site: Site) -> None:
    site.clock.turn(minutes=1)
    schedule = create(site, catch_up=CatchUpMode.NONE)
    site.clock.turn(minutes=59, seconds=55)
    reconcile_schedules(site.context, EVERYTHING)
    assert states(site, schedule) == ["running"]


def test_years_of_missed_seconds_are_handled_quickly(site: Site) -> None:
    site.context.settings = replace(
        site.context.settings, queue=replace(site.context.settings.queue, min_schedule_seconds=1)
    )  # type: ignore[misc]
    schedule = create(site, timing="R//PT1S", catch_up=CatchUpMode.LAST, overlap=OverlapPolicy.ALLOW)
    site.clock.turn(days=700)
    reconcile_schedules(site.context, EVERYTHING)
    missed, last = firings(site, schedule)[:2]
    assert (missed.count, missed.reason) == (
        10_000,
        "10,000 or more due times were not fired in time",
    )
    assert last.due_at == site.clock.at


def test_a_clock_set_back_causes_no_duplicate_and_no_lost_firing(site: Site) -> None:
    schedule = create(site, overlap=OverlapPolicy.ALLOW, catch_up=CatchUpMode.NONE)
    for _ in range(3):  # 12, 13, 14
        reconcile_schedules(site.context, EVERYTHING)
        site.clock.turn(hours=1)
    site.clock.turn(days=3650)
    reconcile_schedules(site.context, EVERYTHING)
    site.clock.turn(days=-3650, hours=-3)  # 12 again, and the years are yet to come
    for _ in range(6):  # to 17
        reconcile_schedules(site.context, EVERYTHING)
        site.clock.turn(hours=1)
    found = [one for one in firings(site, schedule) if one.state is FiringState.RUNNING]
    here = [one.due_at.hour for one in found if one.due_at.year == 2026]
    assert here == [12, 13, 14, 15, 16, 17]


def test_each_due_time_fires_at_most_once_with_any_clock(site: Site) -> None:
    chance = random.Random(4711)
    timing = "R/2026-03-01T12:00:00Z/PT1H"
    schedule = create(
        site, timing=timing, overlap=OverlapPolicy.ALLOW, catch_up=CatchUpMode.ALL, epsilon_seconds=10**6
    )
    latest = site.clock.at
    for _ in range(60):
        site.clock.turn(minutes=chance.choice([1, 20, 45, 90, 200, -30, -180, -500]))
        latest = max(latest, site.clock.at)
        reconcile_schedules(site.context, EVERYTHING)
    found = [one.due_at for one in firings(site, schedule)]
    hours = int((latest - datetime(2026, 3, 1, 12, tzinfo=UTC)).total_seconds() // 3600)
    assert found == [datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(hours=n) for n in range(hours + 1)]
    jobs = {one.job_id for one in firings(site, schedule)}
    assert len(jobs) == len(found)


def test_a_firing_that_cannot_be_written_leaves_no_job_and_is_retried(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = create(site)

    def broken(tx: Transaction, firing: Firing) -> int:
        raise StoreUnavailable("The database cannot be written: raised by the test.")

    with monkeypatch.context() as patch:
        patch.setattr(fired, "add_firing", broken)
        assert reconcile_schedules(site.context, EVERYTHING) == site.clock.at + timedelta(seconds=2)
    with site.context.store.read() as conn:
        assert stored_jobs.list_jobs(conn, stored_jobs.JobFilter(), 10) == []
    reconcile_schedules(site.context, ReconcileTrigger())
    assert states(site, schedule) == ["running"]
    assert firings(site, schedule)[0].job_id == 1


def test_firings_of_a_deactivated_owner_are_refused_with_the_reason(site: Site) -> None:
    site.project("vision")
    ann = person(site, "alice")
    schedule = create(site, caller=ann)
    update_user(site.context, site.root, "alice", UserChange(active=False))
    reconcile_schedules(site.context, EVERYTHING)
    (firing,) = firings(site, schedule)
    assert (firing.state, firing.reason) == (FiringState.REFUSED, "the account alice is deactivated")


def test_firings_are_refused_after_the_unix_user_was_removed(site: Site) -> None:
    site.project("vision")
    schedule = create(site, caller=person(site, "alice"))
    cast(FakeUnix, site.context.authenticator.unix_accounts).users.pop(ALICE)
    reconcile_schedules(site.context, EVERYTHING)
    (firing,) = firings(site, schedule)
    assert (firing.state, firing.reason) == (FiringState.REFUSED, "the Unix user alice no longer exists")


def test_it_runs_with_the_owners_permissions_at_firing_time(site: Site) -> None:
    from heliostat.services.accounts.projects import remove_member

    site.project("vision")
    ann = person(site, "alice")
    schedule = create(site, caller=ann)
    remove_member(site.context, site.root, "vision", "alice")
    reconcile_schedules(site.context, EVERYTHING)
    (firing,) = firings(site, schedule)
    assert firing.state is FiringState.REFUSED
    assert firing.reason == "You are not a member of a project 'vision'."


def test_results_are_counted_once_and_failures_are_retried(site: Site) -> None:
    schedule = create(site, retries=1)
    reconcile_schedules(site.context, EVERYTHING)
    end(site, schedule, JobState.FAILED)
    (firing,) = firings(site, schedule)
    assert (firing.state, firing.tries, firing.job_id) == (FiringState.RUNNING, 2, 2)
    assert job(site, firing).begin_at == site.clock.at + timedelta(seconds=10)
    end(site, schedule, JobState.FAILED)
    reconcile_schedules(site.context, EVERYTHING)
    known = now(site, schedule)
    assert (states(site, schedule), known.failed, known.failed_in_a_row) == (["failed"], 1, 1)
    site.clock.turn(hours=1)
    reconcile_schedules(site.context, ReconcileTrigger())
    end(site, schedule)
    known = now(site, schedule)
    assert (known.succeeded, known.failed, known.failed_in_a_row) == (1, 1, 0)


def test_an_array_has_ended_when_all_its_jobs_have(site: Site) -> None:
    schedule = create(site, job={"array": "0-2"})
    reconcile_schedules(site.context, EVERYTHING)
    site.context.store.write(
        lambda tx: job_writes.update_job(tx, 2, {"state": JobState.COMPLETED, "ended_at": site.clock.at})
    )
    reconcile_schedules(site.context, ReconcileTrigger([2]))
    assert states(site, schedule) == ["running"]
    end(site, schedule)
    assert states(site, schedule) == ["succeeded"]


def test_a_child_fires_each_time_all_its_parents_have_succeeded_since(site: Site) -> None:
    first, second = create(site, "a"), create(site, "b", timing="R/2026-03-01T12:30:00Z/PT1H")
    child = create(site, "c", timing=None, parents=("a", "b"))
    reconcile_schedules(site.context, EVERYTHING)
    end(site, first)
    assert firings(site, child) == []
    site.clock.turn(minutes=30)
    reconcile_schedules(site.context, ReconcileTrigger())
    end(site, second)
    assert states(site, child) == ["running"]
    reconcile_schedules(site.context, EVERYTHING)
    assert len(firings(site, child)) == 1
    end(site, child)
    site.clock.turn(minutes=30)
    reconcile_schedules(site.context, ReconcileTrigger())
    end(site, first, JobState.FAILED)
    site.clock.turn(minutes=30)
    reconcile_schedules(site.context, ReconcileTrigger())
    end(site, second)
    assert len(firings(site, child)) == 1, "one of its parents has failed"
    site.clock.turn(minutes=30)
    reconcile_schedules(site.context, ReconcileTrigger())
    end(site, first)
    assert states(site, child) == ["succeeded", "running"]


def test_a_soft_error_does_not_keep_children_from_firing(site: Site) -> None:
    parent = create(site, "a", soft_error=True)
    child = create(site, "b", timing=None, parents=("a",))
    reconcile_schedules(site.context, EVERYTHING)
    end(site, parent, JobState.FAILED)
    assert states(site, child) == ["running"]


def test_cycles_and_parents_of_other_users_are_refused(site: Site) -> None:
    create(site, "a")
    create(site, "b", timing=None, parents=("a",))
    with pytest.raises(Invalid, match=r"cycle: \w → \w → \w"):
        services.edit_schedule(site.context, site.root, "a", {"timing": None, "parents": ("b",)})
    site.project("vision")
    with pytest.raises(Invalid, match="you have no schedule 'a'"):
        create(site, "c", timing=None, parents=("a",), caller=person(site, "alice"))
    with pytest.raises(Conflict, match="parent of b"):
        services.remove_schedule(site.context, site.root, "a")


def test_a_resumed_schedule_does_not_fire_times_missed_during_the_pause(site: Site) -> None:
    schedule = create(site, overlap=OverlapPolicy.ALLOW, catch_up=CatchUpMode.ALL)
    reconcile_schedules(site.context, EVERYTHING)
    services.pause_schedule(site.context, site.root, "nightly")
    site.clock.turn(hours=5)
    assert reconcile_schedules(site.context, EVERYTHING) is None
    services.resume_schedule(site.context, site.root, "nightly")
    reconcile_schedules(site.context, EVERYTHING)
    assert len(firings(site, schedule)) == 1
    site.clock.turn(hours=1)
    reconcile_schedules(site.context, EVERYTHING)
    assert len(firings(site, schedule)) == 2


def test_a_repeated_request_for_a_manual_firing_runs_it_once(site: Site) -> None:
    site.clock.turn(minutes=10)
    schedule = create(site)
    first = services.run_schedule(site.context, site.root, "nightly", "key")
    site.clock.turn(seconds=1)
    assert services.run_schedule(site.context, site.root, "nightly", "key") == first
    end(site, schedule)
    assert services.run_schedule(site.context, site.root, "nightly", "key").job_id == first.job_id
    assert now(site, schedule).fired == 1
    assert [one.id for one in firings(site, schedule)] == [first.id]
    assert firings(site, schedule)[0].by_hand


def test_an_edit_changes_only_the_given_fields(site: Site) -> None:
    schedule = create(site, retries=3)
    changed = services.edit_schedule(site.context, site.root, "nightly", {"overlap": OverlapPolicy.QUEUE})
    assert (changed.overlap, changed.retries, changed.next_at) == (OverlapPolicy.QUEUE, 3, schedule.next_at)
    changed = services.edit_schedule(site.context, site.root, "nightly", {"timing": "@daily", "zone": "UTC"})
    assert changed.next_at == datetime(2026, 3, 2, tzinfo=UTC)
    assert changed.version == 3


def test_others_cannot_see_or_change_it_and_managers_can_stop_it(site: Site) -> None:
    site.project("vision")
    ann, bob = person(site, "alice"), person(site, "bob")
    schedule = create(site, caller=ann)
    for verb in (services.pause_schedule, services.remove_schedule, services.get_schedule, services.run_schedule):
        with pytest.raises(NotFound):
            verb(site.context, bob, str(schedule.id))
    assert services.list_schedules(site.context, bob, all_users=True) == []
    assert [one.id for one in services.list_schedules(site.context, site.root, all_users=True)] == [schedule.id]
    assert services.list_schedules(site.context, site.root) == []
    for act in (
        lambda: services.edit_schedule(site.context, site.root, str(schedule.id), {"retries": 1}),
        lambda: services.run_schedule(site.context, site.root, str(schedule.id)),
    ):
        with pytest.raises(Forbidden):
            act()
    services.pause_schedule(site.context, site.root, str(schedule.id))
    with pytest.raises(Forbidden):
        services.resume_schedule(site.context, site.root, str(schedule.id))
    services.remove_schedule(site.context, site.root, str(schedule.id))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"timing": "R//PT1S"}, "more often than every 10 seconds"),
        ({"timing": "R3/2020-01-01T00:00:00Z/P1D"}, "in the past"),
        ({"timing": "never"}, "is not a cron"),
        ({"zone": "Mars/Olympus"}, "is not a time zone"),
        ({"timing": None}, "either a schedule or parents"),
        ({"parents": ("x",)}, "either a schedule or parents"),
        ({"name": "12"}, "must not be a number"),
        ({"name": "a/b"}, "must not be a number"),
        ({"name": " a"}, "must be one line"),
        ({"job": {"after": 1}}, "is not allowed for a job of a schedule"),
        ({"job": {"gpus": 99}}, "GPU"),
        ({"job": {"project": "other"}}, "not a member of a project"),
    ],
)
def test_an_invalid_schedule_is_refused_with_the_reason(site: Site, fields: dict[str, Any], what: str) -> None:
    with pytest.raises(HeliostatError, match=what) as error:
        create(site, **{"name": "nightly", **fields})
    assert error.value.hint


def test_due_schedules_are_found_with_an_index(site: Site) -> None:
    with site.context.store.read() as conn:
        plan = conn.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT min(next_at) FROM schedules WHERE next_at IS NOT NULL"
        ).all()
    assert "schedules_by_next" in str(plan)
