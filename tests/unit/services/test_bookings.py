"""Bookings that a plan makes are stored with the job, and last as long as its current wait."""

from datetime import timedelta

from heliostat.controller.round_recording import ReconcileRound, record_round
from heliostat.models import Job, JobId
from heliostat.scheduling.snapshot import Plan
from heliostat.services.jobs.control import hold_job, release_job
from heliostat.store import jobs as stored
from unit.services.site import Site


def job_of(site: Site) -> Job:
    with site.context.store.read() as conn:
        job = stored.get_job(conn, 1)
    assert job is not None
    return job


def record(site: Site, new: tuple[JobId, ...] = (), withdrawn: tuple[JobId, ...] = ()) -> None:
    this_round = ReconcileRound([], Plan(new_bookings=new, withdrawn_bookings=withdrawn), site.clock.at)
    assert this_round.has_changes
    site.context.store.write(lambda tx: record_round(tx, this_round, lambda seen: []))


def test_a_booking_is_stored_until_it_is_withdrawn(site: Site) -> None:
    site.add_job(1)
    record(site, new=(1,))
    assert job_of(site).booked_at == site.clock.at
    assert job_of(site).is_booked
    record(site, withdrawn=(1,))
    assert not job_of(site).is_booked


def test_a_job_that_was_held_has_lost_its_booking(site: Site) -> None:
    site.add_job(1)
    record(site, new=(1,))
    site.clock.at += timedelta(hours=1)
    hold_job(site.context, site.root, 1)
    release_job(site.context, site.root, 1)
    assert not job_of(site).is_booked


def test_a_job_that_was_cancelled_meanwhile_gets_no_booking(site: Site) -> None:
    site.add_job(1)
    hold_job(site.context, site.root, 1)
    record(site, new=(1,))
    assert job_of(site).booked_at is None
