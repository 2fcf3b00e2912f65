"""Whatever Slurm does to a job, and whenever the server dies: attempts are told in order, Slurm has it once."""

import os
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliostat.config import Home, Settings
from heliostat.engines.slurm.command_output import QueueDetails, SlurmJob
from heliostat.engines.slurm.journal import JournalEntry
from heliostat.models import Attempt, AttemptEnded, AttemptStarted, EndCause, JobState
from support.hypothesis_examples import example_count
from unit.engines.slurm.test_slurm_engine import BEGAN, ME, Core, FakeSlurm, Site

STEPS = st.lists(
    st.sampled_from(["run", "requeue", "hold", "suspend", "look", "record", "die", "record and die"]), max_size=25
)


class Story:
    """The controller's part, as far as it matters: it records what it was told, and may die in between."""

    def __init__(self, home: Home) -> None:
        self.settings, self.slurm, self.restarts = Settings(home), FakeSlurm(), 0
        self.core = self.new_core()
        self.untold: list[AttemptStarted | AttemptEnded] = []
        self.recorded: list[AttemptStarted | AttemptEnded] = []
        self.job = Site.attempt(cast(Site, None)).job
        self.core.submitter.submit(self.attempt)
        (self.number,) = self.slurm.known

    def new_core(self) -> Core:
        return Core(self.settings, self.slurm)

    @property
    def attempt(self) -> Attempt:
        return Attempt(self.job.attempt_id, self.job, "")

    def put(self, state: str) -> None:
        runs = state in ("RUNNING", "SUSPENDED")
        standing = QueueDetails(restart_count=self.restarts, priority=1)
        nodes, began = (("n1",), BEGAN) if runs else ((), None)
        self.slurm.known[self.number] = SlurmJob(
            self.number, state, ME, 0, 0, began, None, nodes, "None", standing
        )

    def step(self, what: str) -> None:
        if what == "requeue" and self.slurm.known[self.number].has_started:
            self.restarts += 1
            self.put("PENDING")
        elif what == "run" or (what == "suspend" and self.slurm.known[self.number].has_started):
            self.put("RUNNING" if what == "run" else "SUSPENDED")
        elif what == "look":
            self.core.observer.poll()
            self.untold += cast(list[AttemptStarted | AttemptEnded], self.core.tracked.take_reports())
        elif what == "record":
            self.record()
        elif what == "die":
            self.die()
        elif what == "record and die":
            self.record(is_last_breath=True)
            self.die()

    def record(self, *, is_last_breath: bool = False) -> None:
        newest = self.job.attempt_id  # what is told of another in the same breath would be dropped
        for seen in self.untold:
            assert seen.attempt_id == newest
            self.recorded.append(seen)
            if isinstance(seen, AttemptStarted):
                self.job = replace(self.job, state=JobState.RUNNING, dispatched=False)
            elif seen.cause is EndCause.REQUEUED:
                self.job = replace(self.job, state=JobState.PENDING, dispatched=True, attempt=self.job.attempt + 1)
                if not is_last_breath:
                    self.core.tracked.forget(seen.attempt_id)
        self.untold = []

    def die(self) -> None:
        """What was told and not recorded is forgotten."""
        self.untold = []
        self.core = self.new_core()
        self.core.observer.adopt(self.attempt)
        self.core.observer.poll()
        is_known = self.job.state is JobState.RUNNING
        told = cast(list[AttemptStarted | AttemptEnded], self.core.tracked.take_reports())
        self.untold = [seen for seen in told if not (is_known and isinstance(seen, AttemptStarted))]
        self.core.submitter.cancel_orphans(set(self.core.tracked.journal.attempt_ids()) - {self.job.attempt_id})


@settings(max_examples=example_count(300), deadline=None)
@given(STEPS)
def test_each_attempt_is_told_in_order_and_the_job_is_in_slurm_once(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        for made in (home.jobs, home.attempts):
            made.mkdir()
        story = Story(home)
        for step in steps:
            story.step(step)
        for step in ("run", *("look", "record") * (2 + story.restarts)):  # each requeue is recorded by itself
            story.step(step)
        assert story.job.state is JobState.RUNNING
        assert story.slurm.cancelled == []
        assert len(story.slurm.comments) == 1
        causes = [seen.cause for seen in story.recorded if isinstance(seen, AttemptEnded)]
        assert causes == [EndCause.REQUEUED] * (story.job.attempt - 1)
        assert story.job.attempt <= 1 + story.restarts
        starts = [seen.attempt_id for seen in story.recorded if isinstance(seen, AttemptStarted)]
        assert len(starts) == len(set(starts))


def two_of_one_number(site: Site) -> list[Attempt]:
    """A server noted the first, which ran; Slurm forgot it and gave its number to the second."""
    attempts = [site.attempt(1, state=JobState.RUNNING, dispatched=False), site.attempt(2)]
    for place, attempt in enumerate(attempts):
        site.journal.put(attempt.id, JournalEntry(ME, 55))
        os.utime(site.home.attempts / f"{attempt.id}.slurm", (1_700_000_000 + place,) * 2)
        (site.home.jobs / str(attempt.job.id)).mkdir(parents=True)
    (site.home.jobs / "1" / "1.receipt").write_text("begun 55 0 n1\n")
    (site.home.jobs / "2" / "1.receipt").touch()
    site.slurm.put(55, f"heliostat:{site.engine.instance}:2.1")
    site.slurm.run(55)
    return attempts


@pytest.mark.parametrize("order", [1, -1])
def test_the_end_of_a_job_is_not_that_of_another_which_had_its_number(tmp_path: Path, order: int) -> None:
    site = Site(tmp_path)
    attempts = two_of_one_number(site)
    (site.home.jobs / "2" / "1.receipt").write_text("begun 55 0 n1\nended 55 0 0\n")
    site.slurm.known[55] = replace(site.slurm.known[55], state="COMPLETED", ended_at=datetime.now(UTC))
    site.reports += site.engine.observe(attempts[::order])
    site.wait_until(lambda: len(site.ends()) == 2, "both have ended")
    site.engine.close()
    causes = {end.attempt_id: end.cause for end in site.ends()}
    assert causes == {"1.1": EndCause.LOST, "2.1": EndCause.EXITED}


def test_one_whose_number_was_given_twice_and_who_never_began_is_handed_over_again(tmp_path: Path) -> None:
    """Slurm ends the one it has forgotten, and takes that for the end of this one."""
    site = Site(tmp_path)
    attempts = two_of_one_number(site)
    site.slurm.known[55] = replace(site.slurm.known[55], state="FAILED", signal=9, ended_at=datetime.now(UTC))
    site.reports += site.engine.observe(attempts)
    site.wait_until(lambda: len(site.ends()) == 2, "both have ended")
    site.engine.close()
    causes = {end.attempt_id: end.cause for end in site.ends()}
    assert causes == {"1.1": EndCause.LOST, "2.1": EndCause.NOT_STARTED}


def test_the_word_of_a_job_that_it_ended_counts_more_than_accounts_that_were_never_closed(tmp_path: Path) -> None:
    """A killed slurmctld may leave a job that runs for ever in the accounting, and is in no queue."""
    site = Site(tmp_path)
    attempt = site.attempt(1, state=JobState.RUNNING, dispatched=False)
    site.journal.put(attempt.id, JournalEntry(ME, 55))
    (site.home.jobs / "1").mkdir(parents=True)
    (site.home.jobs / "1" / "1.receipt").write_text("begun 55 0 n1\nended 55 0 0\n")
    site.slurm.put(55, f"heliostat:{site.engine.instance}:1.1")
    site.slurm.run(55)
    site.slurm.past[55] = site.slurm.known.pop(55)
    site.reports += site.engine.observe([attempt])
    site.wait_until(lambda: bool(site.ends()), "its end")
    site.engine.close()
    assert [(end.cause, end.exit_code) for end in site.ends()] == [(EndCause.EXITED, 0)]
