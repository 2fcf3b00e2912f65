"""The waiting time of a job: only while it is in the queue."""

from dataclasses import replace
from datetime import timedelta

import pytest

from heliostat.controller.round_recording import ReconcileRound, record_round
from heliostat.controller.transition_rules import end_transition
from heliostat.models import AttemptEnded, EndCause, Job, JobState, TaskPlacement
from heliostat.scheduling.snapshot import Plan, PlannedStart
from heliostat.services.jobs.control import hold_job, release_job
from heliostat.store import jobs as stored
from unit.services.site import Site

HOUR = 3600.0


def job_of(site: Site) -> Job:
    with site.context.store.read() as conn:
        job = stored.get_job(conn, 1)
    assert job is not None
    return job


def waited(site: Site) -> float:
    return job_of(site).queue_wait_seconds(site.clock.at) / HOUR


def pass_hours(site: Site, hours: float) -> None:
    site.clock.at += timedelta(hours=hours)


def start(site: Site) -> None:
    plan = Plan(starts=(PlannedStart(job_of(site), (TaskPlacement("n1"),)),))
    site.context.store.write(lambda tx: record_round(tx, ReconcileRound([], plan, site.clock.at), lambda seen: []))
    assert job_of(site).state is JobState.STARTING


def end(site: Site, cause: EndCause, **fields: object) -> None:
    job = replace(job_of(site), **fields)  # type: ignore[arg-type]
    seen = AttemptEnded(job.attempt_id, site.clock.at, cause)
    this_round = ReconcileRound([seen], Plan(), site.clock.at)
    site.context.store.write(
        lambda tx: record_round(tx, this_round, lambda _: [end_transition(job, seen, may_retry=True)])
    )
    assert job_of(site).state is JobState.PENDING


def test_held_time_does_not_count_as_waiting(site: Site) -> None:
    site.add_job(1)
    pass_hours(site, 2)
    assert waited(site) == 2
    hold_job(site.context, site.root, 1)
    pass_hours(site, 100)
    assert waited(site) == 2
    release_job(site.context, site.root, 1)
    assert waited(site) == 2
    pass_hours(site, 1)
    assert waited(site) == 3


def test_a_job_submitted_as_held_starts_waiting_when_released(site: Site) -> None:
    site.add_job(1, state=JobState.HELD)
    pass_hours(site, 100)
    release_job(site.context, site.root, 1)
    pass_hours(site, 1)
    assert waited(site) == 1


@pytest.mark.parametrize(
    ("cause", "fields"),
    [
        (EndCause.STOPPED, {"stop_requested": "requeue"}),
        (EndCause.STOPPED, {"stop_requested": "preempt"}),
        (EndCause.LOST, {"max_retries": 9}),
        (EndCause.NOT_STARTED, {}),
    ],
)
def test_a_requeued_job_keeps_its_waiting_time(site: Site, cause: EndCause, fields: dict[str, object]) -> None:
    site.add_job(1)
    for hours in (5, 11):
        pass_hours(site, 5)
        start(site)
        pass_hours(site, 50)
        end(site, cause, **fields)
        pass_hours(site, 1)
        assert waited(site) == hours + 1
