"""What others do to our jobs with Slurm's own tools, against a made-up Slurm."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from heliostat.engines.slurm.command_output import QueueDetails, SlurmJob
from heliostat.engines.slurm.journal import JournalEntry
from heliostat.engines.slurm.tracked_jobs import TrackedJob, find_changed_time_limit
from heliostat.models import Attempt, AttemptEnded, AttemptStarted, EndCause, TimeLimitChanged
from unit.engines.slurm.test_slurm_engine import BEGAN, ME, Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.engine.close()


def running(site: Site) -> Attempt:
    attempt = site.attempt()
    site.engine.start([attempt])
    site.wait_until(lambda: site.journal.find("1.1") == JournalEntry(ME, 100), "it is in Slurm")
    site.slurm.run(100)
    site.wait_until(lambda: starts(site) == ["1.1"], "its start is told")
    return attempt


def starts(site: Site) -> list[str]:
    return [seen.attempt_id for seen in site.reports if isinstance(seen, AttemptStarted)]


def requeue(site: Site, restarts: int = 1, state: str = "PENDING") -> None:
    job = site.slurm.known[100]
    nodes, began = ((), None) if state == "PENDING" else (("n1",), BEGAN)
    standing = QueueDetails(restart_count=restarts, priority=1)
    site.slurm.known[100] = replace(job, state=state, nodes=nodes, started_at=began, squeue_details=standing)


def test_a_requeued_job_ends_as_this_attempt_and_waits_as_the_next(site: Site) -> None:
    running(site)
    requeue(site)
    site.wait_until(site.ends, "its end is told")
    (end,) = site.ends()
    assert (end.attempt_id, end.cause) == ("1.1", EndCause.REQUEUED)
    site.wait_until(lambda: site.engine.wait_reason("1.2"), "it waits")
    site.engine.forget(["1.1"])
    assert site.journal.find("1.1") is None
    assert site.journal.find("1.2") == JournalEntry(ME, 100, restart_count=1, submitted_as_attempt=1)
    requeue(site, state="RUNNING")
    site.wait_until(lambda: starts(site) == ["1.1", "1.2"], "its second start is told")
    site.slurm.end(100)
    site.wait_until(lambda: len(site.ends()) == 2, "its end is told")
    assert site.ends()[1].cause is EndCause.EXITED
    assert list(site.slurm.comments) == [100]
    assert site.slurm.cancelled == []


def test_the_next_attempt_is_not_told_of_before_the_end_of_the_former_is_recorded(site: Site) -> None:
    running(site)
    requeue(site, state="RUNNING")
    site.wait_until(site.ends, "its end is told")
    looks = site.slurm.looks
    site.wait_until(lambda: site.slurm.looks > looks + 3, "it looks on")
    assert starts(site) == ["1.1"]
    assert site.engine.observe([site.attempt()]) == site.ends()  # asked again: the same
    site.engine.forget(["1.1"])
    site.wait_until(lambda: starts(site) == ["1.1", "1.2"], "its second start is told")


def test_each_attempt_of_a_requeued_job_has_its_own_output(site: Site) -> None:
    running(site)
    slurms = site.home.jobs / "1" / "1.stdout"  # where Slurm writes, each time
    for restarts, words in enumerate(("one\n", "two\n", "three\n")):
        with slurms.open("a") as file:
            file.write(words)
        if restarts < 2:
            requeue(site, restarts + 1)
            site.wait_until(lambda: len(site.ends()) == restarts + 1, "its end is told")  # noqa: B023
            site.engine.forget([f"1.{restarts + 1}"])
    said = [site.engine.read_log(1, attempt, "stdout", 0, 100).data.decode() for attempt in (1, 2, 3)]
    assert said == ["one\n", "two\n", "three\n"]


def test_one_whose_first_run_is_not_quite_over_is_not_taken_for_running_again(site: Site) -> None:
    running(site)
    slurms = site.home.jobs / "1" / "1.stdout"
    slurms.write_text("one\n")
    requeue(site, state="COMPLETING")
    looks = site.slurm.looks
    site.wait_until(lambda: site.slurm.looks > looks + 3, "it looks on")
    requeue(site)
    site.wait_until(site.ends, "its end is told")
    with slurms.open("a") as file:
        file.write("two\n")
    assert [site.engine.read_log(1, attempt, "stdout", 0, 100).data.decode() for attempt in (1, 2)] == [
        "one\n",
        "two\n",
    ]


def test_a_server_killed_before_the_requeue_is_recorded_tells_it_again(site: Site) -> None:
    attempt = running(site)
    requeue(site)
    site.wait_until(site.ends, "its end is told")
    site.restart()
    (seen,) = site.engine.observe([attempt])
    site.engine.forget_all_except({"1.1"})
    assert isinstance(seen, AttemptEnded)
    assert (seen.attempt_id, seen.cause) == ("1.1", EndCause.REQUEUED)
    assert site.slurm.cancelled == []


def test_a_server_killed_after_the_requeue_is_recorded_finds_the_job_under_its_number(site: Site) -> None:
    attempt = running(site)
    requeue(site)
    site.wait_until(site.ends, "its end is told")
    site.restart()
    again = Attempt("1.2", replace(attempt.job, attempt=2), "")
    assert site.engine.observe([again]) == []
    site.engine.forget_all_except({"1.2"})
    assert site.journal.find("1.2") == JournalEntry(ME, 100, restart_count=1, submitted_as_attempt=1)
    requeue(site, state="RUNNING")
    site.wait_until(lambda: "1.2" in starts(site), "its second start is told")
    assert site.slurm.cancelled == []


def test_one_that_runs_again_after_such_a_death_is_not_taken_for_requeued_once_more(site: Site) -> None:
    attempt = running(site)
    (site.home.jobs / "1" / "1.receipt").write_text("begun 100 0 n1\n")
    requeue(site, state="RUNNING")
    site.wait_until(site.ends, "its end is told")
    site.restart()
    again = Attempt("1.2", replace(attempt.job, attempt=2), "")
    (seen,) = site.engine.observe([again])
    assert isinstance(seen, AttemptStarted)
    assert seen.attempt_id == "1.2"
    assert site.journal.find("1.2") == JournalEntry(ME, 100, restart_count=1, submitted_as_attempt=1)


def test_a_stop_that_comes_while_it_is_requeued_takes_it_out_of_slurm(site: Site) -> None:
    attempt = running(site)
    requeue(site)
    site.wait_until(site.ends, "its end is told")
    site.engine.stop(attempt, 0.0)
    site.wait_until(lambda: site.slurm.cancelled, "it is cancelled")


def test_who_is_being_stopped_is_not_put_back(site: Site) -> None:
    attempt = running(site)
    site.engine.stop(attempt, 60.0)
    looks = site.slurm.looks
    site.wait_until(lambda: site.slurm.looks > looks + 1, "it heard of it")
    requeue(site)
    site.wait_until(site.ends, "its end is told")
    assert (site.ends()[0].attempt_id, site.ends()[0].cause) == ("1.1", EndCause.STOPPED)


def test_a_limit_changed_with_slurms_tools_is_told_once(site: Site) -> None:
    attempt = site.attempt(time_limit_seconds=600)
    site.engine.start([attempt])
    site.wait_until(lambda: 100 in site.slurm.known, "it is in Slurm")
    standing = QueueDetails(time_limit="2:00:00")
    site.slurm.known[100] = replace(site.slurm.known[100], squeue_details=standing)
    site.wait_until(lambda: site.reports, "it is told")
    looks = site.slurm.looks
    site.wait_until(lambda: site.slurm.looks > looks + 3, "it looks on")
    assert [(type(seen), getattr(seen, "time_limit_seconds", 0)) for seen in site.reports] == [
        (TimeLimitChanged, 7200)
    ]


@pytest.mark.parametrize(
    ("ours", "slurms", "found"),
    [
        (600, "12:00", None),  # with grace and margin: as we have said
        (600, "10:00", None),  # as it was set before
        (600, "2:00:00", (7200,)),
        (600, "UNLIMITED", (None,)),
        (None, "365-00:00:00", None),
    ],
)
def test_a_limit_is_others_when_it_is_not_what_we_asked_for(
    site: Site, ours: int | None, slurms: str, found: tuple[int | None] | None
) -> None:
    job = SlurmJob(1, "RUNNING", ME, 0, 0, BEGAN, None, ("n1",), "None", QueueDetails(time_limit=slurms))
    attempt = site.attempt(time_limit_seconds=ours)
    attempt = replace(attempt, job=replace(attempt.job, spec=replace(attempt.job.spec, grace_seconds=30.0)))
    assert find_changed_time_limit(attempt, job, None if ours is None else 12) == found


def test_time_in_which_a_job_was_suspended_does_not_count(site: Site) -> None:
    now = datetime(2026, 1, 1, 1, tzinfo=UTC)
    began = now - timedelta(seconds=900)
    tracked = TrackedJob(
        site.attempt(time_limit_seconds=600), "", ME, 1, started=AttemptStarted("1.1", began), is_running=True
    )
    job = SlurmJob(1, "SUSPENDED", ME, 0, 0, began, None, ("n1",), "None", QueueDetails(time_used="5:00"))
    assert tracked.has_exceeded_time_limit(now)
    tracked.update_suspension(job, now)
    assert not tracked.has_exceeded_time_limit(now)
    tracked.update_suspension(replace(job, state="RUNNING"), now)
    assert not tracked.has_exceeded_time_limit(now + timedelta(seconds=299))
    assert tracked.has_exceeded_time_limit(now + timedelta(seconds=300))
