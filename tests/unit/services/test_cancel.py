import pytest

from heliostat.errors import Forbidden
from heliostat.models import JobState
from heliostat.services.jobs.control import cancel_job, cancel_jobs, requeue_job
from unit.services.site import Site


def test_a_forced_cancel_replaces_a_cancel_during_its_grace_period(site: Site) -> None:
    site.add_job(1, state=JobState.RUNNING, node="n1", attempt=1)
    assert cancel_job(site.context, site.root, 1).stop_requested == "cancel"
    assert cancel_job(site.context, site.root, 1, force=True).stop_requested == "kill"
    assert cancel_job(site.context, site.root, 1).stop_requested == "kill"
    assert requeue_job(site.context, site.root, 1).stop_requested == "kill"
    assert "job.kill" in [entry.action for entry in site.audit()]


def test_waiting_jobs_end_at_once_with_and_without_force(site: Site) -> None:
    site.add_job(1)
    site.add_job(2, state=JobState.RUNNING, node="n1", attempt=1)
    assert cancel_jobs(site.context, site.root, [1, 2], force=True) == [1, 2]
    assert cancel_job(site.context, site.root, 1, force=True).state is JobState.CANCELLED
    assert cancel_job(site.context, site.root, 2).stop_requested == "kill"


def test_a_job_that_is_cancelled_while_it_waits_keeps_the_time_it_has_waited(site: Site) -> None:
    site.add_job(1)
    site.add_job(2, state=JobState.HELD, waited_seconds=60.0)
    site.add_job(3, parents_left=1)
    site.clock.turn(hours=1)
    cancel_jobs(site.context, site.root, [1, 2, 3])
    waited = [cancel_job(site.context, site.root, number).waited_seconds for number in (1, 2, 3)]
    assert waited == [3600.0, 60.0, 0.0]


def test_a_forced_cancel_needs_permission(site: Site) -> None:
    site.add_job(1, state=JobState.RUNNING, node="n1", attempt=1)
    with pytest.raises(Forbidden):
        cancel_job(site.context, site.person("bob"), 1, force=True)
