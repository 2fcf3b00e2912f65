"""A job that waits for another comes to Slurm only when that has ended as the rule says, whatever happens to it
there and whenever the server dies; and it runs once or not at all."""

import contextlib
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from heliostat.config import Home, Settings
from heliostat.controller.transition_rules import transitions_for_observation
from heliostat.errors import EngineUnavailable
from heliostat.models import (
    Attempt,
    AttemptEnded,
    AttemptStarted,
    Dependency,
    DependencyCondition,
    EndCause,
    Job,
    JobState,
    Observation,
    TimeLimitChanged,
)
from heliostat.scheduling.dispatch import select_jobs_to_dispatch
from support.hypothesis_examples import example_count
from unit.engines.slurm.test_slurm_engine import BEGAN, Core, FakeSlurm, Site

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PARENT, CHILD = 1, 2
STEPS = st.lists(
    st.sampled_from(
        [
            *("the parent begins", "it exits with 0", "it exits with 1", "its node fails"),
            *("somebody cancels it", "somebody requeues it", "slurm starts the child", "the child ends"),
            *("round", "record", "all goes on", "all goes on", "die", "record and die"),
            *(f"round of {calls} calls" for calls in range(1, 7)),
        ]
    ),
    max_size=20,
)


class FailingSlurm(FakeSlurm):
    """Answers so many calls only."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_left: int | None = None

    def _answer(self) -> None:
        super()._answer()
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise EngineUnavailable("Slurm does not answer.")


class Story:
    """The controller's part, as far as it matters: it records what it was told, and may die in between."""

    def __init__(self, home: Home, rule: DependencyCondition, max_retries: int) -> None:
        self.settings, self.slurm = Settings(home), FailingSlurm()
        parent = replace(Site.attempt(cast(Site, None), PARENT).job, attempt=0, dispatched=False)
        child = replace(parent, id=CHILD, after=(Dependency(PARENT, rule),), parents_left=1)
        self.jobs: dict[int, Job] = {PARENT: replace(parent, max_retries=max_retries), CHILD: child}
        self.core = self.new_core()
        self.arrived: dict[str, Attempt] = {}
        self.wishes: list[str] = []
        self.untold: list[Observation] = []
        self.runs_of_child = 0

    def new_core(self) -> Core:
        return Core(self.settings, self.slurm)

    def numbers(self, job: int) -> list[int]:
        attempts = [f":{job}.{attempt}" for attempt in range(1, self.jobs[job].attempt + 1)]
        return [number for number, said in self.slurm.comments.items() if said.endswith(tuple(attempts))]

    def living(self, job: int) -> int | None:
        there = [number for number in self.numbers(job) if not self.slurm.known[number].is_terminal]
        assert len(there) <= 1, "it is in Slurm twice"
        return there[0] if there else None

    def step(self, what: str) -> None:
        if what == "all goes on":
            for one in ("round", "record", "the parent begins", "round", "record", "round"):
                self.step(one)
            return
        if what.endswith(" calls"):
            self.slurm.calls_left = int(what.split()[2])
            with contextlib.suppress(EngineUnavailable):
                self.round()
            self.slurm.calls_left = None
            self.untold += self.core.tracked.take_reports()
            return
        if what in ("round", "record", "die", "record and die"):
            {"round": self.round, "record": self.record, "die": self.die}.get(what, self.record_and_die)()
            return
        if what == "slurm starts the child":
            self.start_child()
            return
        if what.startswith("somebody"):
            self.wish("cancel" if "cancels" in what else "requeue")
            return
        job = CHILD if "child" in what else PARENT
        number = self.living(job)
        if number is None:
            return
        if what == "the parent begins":
            self.begin(number)
        elif self.slurm.known[number].has_started:
            self.end(number, what)

    def begin(self, number: int) -> None:
        if self.slurm.known[number].is_waiting:
            assert number in self.numbers(CHILD) or not self.runs_of_child, "the parent runs after its child"
            self.slurm.run(number)
            self.slurm.receipt(number).write_text(f"begun {number} 0 n1\n")

    def end(self, number: int, what: str) -> None:
        job = self.slurm.known[number]
        state = {"its node fails": "NODE_FAIL", "it exits with 1": "FAILED"}.get(what, "COMPLETED")
        if state != "NODE_FAIL":
            with self.slurm.receipt(number).open("a") as receipt:
                receipt.write(f"ended {number} 0 {int(state == 'FAILED')}\n")
        code = int(state == "FAILED")
        self.slurm.known[number] = replace(job, state=state, exit_code=code, ended_at=BEGAN)

    def start_child(self) -> None:
        number = self.living(CHILD)
        if number is None or not self.slurm.known[number].is_waiting:
            return
        self.begin(number)
        self.runs_of_child += 1

    def wish(self, what: str) -> None:
        parent = self.jobs[PARENT]
        if parent.is_terminal or parent.stop_requested:
            return
        if parent.state is JobState.RUNNING:
            self.jobs[PARENT] = replace(parent, stop_requested=what)
            self.wishes.append(parent.attempt_id)
        elif what == "cancel":
            if parent.dispatched:
                self.wishes.append(parent.attempt_id)
            self.move(parent, JobState.CANCELLED, {"dispatched": False})

    def round(self) -> None:
        """As the engine's."""
        for attempt_id in self.wishes:
            if attempt := self.arrived.pop(attempt_id, None):
                self.core.submitter.withdraw(attempt)
            if tracked := self.core.tracked.jobs.get(attempt_id):
                tracked.request_stop(EndCause.STOPPED, "TERM", 1e18)
        self.wishes = []
        try:
            for attempt in self.arrived.values():
                self.core.submitter.submit(attempt)
        finally:
            gone = {*self.core.tracked.jobs, *self.core.tracked.ended}
            self.arrived = {key: one for key, one in self.arrived.items() if key not in gone}
        self.core.observer.poll()
        self.core.observer.send_signals()
        self.untold += self.core.tracked.take_reports()

    def record(self) -> None:
        ended = self.observed()
        self.hand_over()
        for attempt_id in ended:
            self.core.tracked.forget(attempt_id)

    def record_and_die(self) -> None:
        self.observed()
        self.hand_over()
        self.die()

    def observed(self) -> list[str]:
        seen, self.untold = self.untold, []
        for kind in (AttemptStarted, AttemptEnded):
            for one in [one for one in seen if isinstance(one, kind)]:
                job = self.jobs[int(one.attempt_id.partition(".")[0])]
                is_newest = job.attempt_id == one.attempt_id
                if is_newest and (job.state in (JobState.STARTING, JobState.RUNNING) or job.dispatched):
                    for move in transitions_for_observation(job, one, may_retry=True):
                        self.move(self.jobs[job.id], move.to_state, dict(move.values))
        return [
            one.attempt_id
            for one in seen
            if isinstance(one, AttemptEnded) and not isinstance(one, TimeLimitChanged)
        ]

    def move(self, job: Job, to: JobState, values: dict[str, object]) -> None:
        """As `store/job_writes.py`, which tells the child."""
        self.jobs[job.id] = replace(job, **{"dispatched": False, **values, "state": to})  # type: ignore[arg-type]
        child = self.jobs[CHILD]
        if job.id != PARENT or not self.jobs[PARENT].is_terminal or child.is_terminal:
            return
        if child.after[0].condition.is_met_by(to):
            self.jobs[CHILD] = replace(child, parents_left=0)
        else:
            assert child.state is JobState.PENDING
            assert not child.dispatched
            self.jobs[CHILD] = replace(child, state=JobState.CANCELLED)

    def hand_over(self) -> None:
        alive = {number: job for number, job in self.jobs.items() if not job.is_terminal}
        for ready in select_jobs_to_dispatch(alive.values(), NOW):
            job = self.jobs[ready.id] = replace(ready, attempt=ready.attempt + 1, dispatched=True)
            self.arrived[job.attempt_id] = Attempt(job.attempt_id, job, "")

    def die(self) -> None:
        """What was told and not recorded is forgotten, and so is what was to be done."""
        self.untold, self.arrived, self.wishes = [], {}, []
        self.core = self.new_core()
        mine = [
            job
            for job in self.jobs.values()
            if job.dispatched or job.state in (JobState.STARTING, JobState.RUNNING)
        ]
        for job in mine:
            self.core.observer.adopt(Attempt(job.attempt_id, job, ""))
        self.core.observer.poll()
        known = {job.attempt_id for job in mine if job.state is JobState.RUNNING}
        told = self.core.tracked.take_reports()
        self.untold = [
            seen for seen in told if not (isinstance(seen, AttemptStarted) and seen.attempt_id in known)
        ]
        self.core.submitter.cancel_orphans(
            set(self.core.tracked.journal.attempt_ids()) - {job.attempt_id for job in mine}
        )
        self.wishes = [job.attempt_id for job in mine if job.stop_requested]

    def play_to_the_end(self) -> None:
        for _ in range(60):
            for what in ("round", "record", "the parent begins", "round", "it exits with 0"):
                self.step(what)
            for what in ("round", "record", "slurm starts the child", "round", "record", "the child ends"):
                self.step(what)
            if all(job.is_terminal for job in self.jobs.values()):
                return
        raise AssertionError(f"they do not come to an end: {self.jobs}")


@settings(max_examples=example_count(300), deadline=None)
@given(STEPS, st.sampled_from(DependencyCondition), st.integers(0, 1))
@example([*["all goes on"] * 2, "its node fails", "slurm starts the child"], DependencyCondition.ANY, 1)
@example([*["all goes on"] * 2, "somebody requeues it", "round", "it exits with 0"], DependencyCondition.OK, 0)
@example([*["all goes on"] * 2, "somebody requeues it", "round of 4 calls", "die"], DependencyCondition.ANY, 0)
@example(["record", "all goes on", "it exits with 1", "slurm starts the child"], DependencyCondition.BUILT, 0)
def test_a_child_runs_once_if_its_parent_ended_as_it_should_and_else_never(
    steps: list[str], rule: DependencyCondition, max_retries: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        for made in (home.jobs, home.attempts):
            made.mkdir()
        story = Story(home, rule, max_retries)
        for step in steps:
            story.step(step)
        story.play_to_the_end()
        parent, child = story.jobs[PARENT], story.jobs[CHILD]
        assert (child.state is JobState.COMPLETED) == rule.is_met_by(parent.state)
        assert story.runs_of_child == (child.state is JobState.COMPLETED)
