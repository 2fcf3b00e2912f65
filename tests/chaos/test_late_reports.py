"""Reports that are late, repeated or out of order, crashes and a full disk, in any order Hypothesis can think of."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chaos.stage import Stage, Truth
from heliostat.errors import Conflict
from heliostat.models import (
    TERMINAL,
    AttemptRecord,
    Cause,
    Ended,
    Job,
    JobId,
    JobState,
    Resources,
    Started,
    may_move,
)
from heliostat.workers import controller as controllers

_ENDS = st.sampled_from(
    [
        (Cause.EXITED, 0),
        (Cause.EXITED, 3),
        (Cause.TIMED_OUT, 143),
        (Cause.OUT_OF_MEMORY, 137),
        (Cause.LOST, None),
    ]
)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(controllers, "_RETRY_SECONDS", 0.0)
    stage = Stage(tmp_path / "home")
    yield stage
    stage.close()


def test_a_repeated_end_of_a_requeued_attempt_does_not_cancel_the_waiting_job(stage: Stage) -> None:
    job_id = stage.submit()
    stage.settle()
    stage.engine.open(False)
    stage.ask("requeue", job_id)
    stage.settle()
    ended = stage.engine.end(f"{job_id}.1", Cause.STOPPED, 143)
    for _ in range(2):
        stage.engine.tell(ended)
        stage.settle()
        assert stage.job(job_id).state is JobState.PENDING
    stage.ask("hold", job_id)
    stage.engine.tell(ended)
    stage.settle()
    assert stage.job(job_id).state is JobState.HELD


@pytest.mark.parametrize("cause", [Cause.EXITED, Cause.STOPPED, Cause.LOST, Cause.TIMED_OUT, Cause.NOT_STARTED])
def test_a_late_end_of_the_first_attempt_does_not_touch_the_second(stage: Stage, cause: Cause) -> None:
    job_id = stage.submit(max_retries=1)
    stage.settle()
    first = stage.engine.end(f"{job_id}.1", Cause.LOST)
    stage.engine.tell(first)
    stage.settle()
    stage.engine.tell(Started(f"{job_id}.2", stage.clock()))
    stage.settle()
    before, attempts = stage.job(job_id), stage.attempts(job_id)
    assert (before.state, before.attempt) == (JobState.RUNNING, 2)
    late = Ended(f"{job_id}.1", stage.clock(), cause, 0)
    stage.engine.tell(late, Started(f"{job_id}.1", stage.clock()), late)
    stage.settle()
    assert stage.job(job_id) == before
    assert stage.attempts(job_id) == attempts


def test_a_stop_the_engine_could_not_carry_out_is_asked_again(stage: Stage) -> None:
    job_id = stage.submit()
    stage.settle()
    stage.engine.fails_to_stop = 1
    stage.ask("cancel", job_id)
    stage.settle()
    assert stage.engine.stops == [f"{job_id}.1"]


class LateReports(RuleBasedStateMachine):
    """What may be told is always true; when and how often it is told is not."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.stage = Stage(Path(self.folder.name) / "home")
        self.over: dict[JobId, Job] = {}
        self.ended: dict[tuple[JobId, int], AttemptRecord] = {}
        self.cancels: set[JobId] = set()

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        try:
            self._let_everything_end()
        finally:
            self.stage.close()
            self.folder.cleanup()

    @rule(priority=st.integers(-1, 1), retries=st.integers(0, 2), gpus=st.integers(1, 2), held=st.booleans())
    def submit(self, priority: int, retries: int, gpus: int, held: bool) -> None:
        state = JobState.HELD if held else JobState.PENDING
        self.stage.submit(
            priority=priority, max_retries=retries, resources=Resources(1, 16, gpus), state=state
        )
        self.stage.settle()

    @precondition(lambda self: self.stage.jobs())
    @rule(data=st.data(), verb=st.sampled_from(["cancel", "requeue", "requeue", "hold", "release"]), settle=st.booleans())
    def ask(self, data: st.DataObject, verb: str, settle: bool) -> None:
        job = data.draw(st.sampled_from(self.stage.jobs()))
        try:
            self.stage.ask(verb, job.id)
        except Conflict:
            return
        if verb == "cancel":
            self.cancels.add(job.id)
        if settle:
            self.stage.settle()

    @precondition(lambda self: self.stage.engine.running())
    @rule(data=st.data(), how=_ENDS, tell=st.booleans())
    def end(self, data: st.DataObject, how: tuple[Cause, int | None], tell: bool) -> None:
        truth = data.draw(st.sampled_from(self.stage.engine.running()))
        cause, exit_code = how
        if truth.stop_asked and cause is Cause.EXITED:
            cause = Cause.STOPPED  # as engines say it, whatever the exit code
        ended = self.stage.engine.end(truth.attempt.id, cause, exit_code)
        if tell:
            self.stage.engine.tell(ended)
            self.stage.settle()

    @precondition(lambda self: self.stage.engine.truths)
    @rule(data=st.data(), settle=st.booleans())
    def tell_what_is_true_of_some_in_any_order(self, data: st.DataObject, settle: bool) -> None:
        told = data.draw(st.lists(st.sampled_from(self._all_reports()), min_size=1, max_size=6))
        self.stage.engine.tell(*told)
        if settle:
            self.stage.settle()

    @rule(is_open=st.booleans())
    def open_or_close_the_node(self, is_open: bool) -> None:
        self.stage.engine.open(is_open)
        self.stage.settle()

    @rule()
    def restart(self) -> None:
        self.stage.restart()

    @rule(priority=st.integers(-1, 1))
    def crash_between_recording_a_start_and_carrying_it_out(self, priority: int) -> None:
        self.stage.engine.is_deaf = True
        self.stage.submit(priority=priority)
        self.stage.settle()
        self.stage.restart()

    @precondition(lambda self: self.stage.engine.truths)
    @rule(data=st.data())
    def report_while_the_disk_is_full(self, data: st.DataObject) -> None:
        write = self.stage.store.write
        self.stage.fail_next_write()
        self.stage.engine.tell(*data.draw(st.lists(st.sampled_from(self._all_reports()), min_size=1, max_size=3)))
        self.stage.settle()
        self.stage.store.write = write  # type: ignore[method-assign]

    @invariant()
    def terminal_states_never_change(self) -> None:
        for job in self.stage.jobs():
            if job.is_over:
                assert self.over.setdefault(job.id, job) == job
            else:
                assert job.id not in self.over

    @invariant()
    def ended_attempts_never_change(self) -> None:
        for job in self.stage.jobs():
            for record in self.stage.attempts(job.id):
                if record.ended_at is not None:
                    assert self.ended.setdefault((job.id, record.number), record) == record
                else:
                    assert record.number == job.attempt, "only the newest attempt may be without an end"

    @invariant()
    def every_move_is_allowed_and_none_is_told_twice(self) -> None:
        states: dict[JobId, tuple[JobState, int]] = {}
        for event in self.stage.events():
            before, attempt = states.get(event.job_id, (event.state, 0))
            if not event.kind.endswith(("submitted", "_requested")):
                assert may_move(before, event.state), f"{event} after {before}"
            assert event.attempt >= attempt, f"{event} after attempt {attempt}"
            states[event.job_id] = (event.state, event.attempt)

    @invariant()
    def each_end_is_that_of_the_newest_attempt(self) -> None:
        for job in self.stage.jobs():
            if job.state in TERMINAL:
                self._check_end(job)

    def _check_end(self, job: Job) -> None:
        truth = self.stage.engine.truths.get(job.attempt_id)
        if job.state is JobState.CANCELLED:
            assert job.id in self.cancels, "nobody asked for it"
            assert truth is None or truth.ended is not None, "it still runs"
            return
        assert truth is not None
        assert truth.ended is not None
        assert job.exit_code == truth.ended.exit_code
        expected = {
            Cause.TIMED_OUT: JobState.TIMED_OUT,
            Cause.OUT_OF_MEMORY: JobState.FAILED,
            Cause.LOST: JobState.LOST,
            Cause.EXITED: JobState.COMPLETED if truth.ended.exit_code == 0 else JobState.FAILED,
        }
        assert job.state is expected[truth.ended.cause]

    def _all_reports(self) -> list[Started | Ended]:
        at = self.stage.clock()
        truths = self.stage.engine.truths.values()
        started = [Started(truth.attempt.id, at) for truth in truths]
        ended = [truth.ended for truth in truths if truth.ended]
        return [*reversed(ended), *reversed(started)]  # Hypothesis likes the first ones best

    def _let_everything_end(self) -> None:
        """However it came so far: nothing is stuck, everything reaches an end."""
        self.stage.engine.open(True)
        for _ in range(200):
            self.stage.settle()
            for job in self.stage.jobs():
                if job.state is JobState.HELD:
                    self.stage.ask("release", job.id)
            for truth in self.stage.engine.running():
                self._end_now(truth)
            self.stage.engine.tell(*self._all_reports())
            self.stage.settle()
            unfinished = [job for job in self.stage.jobs() if not job.is_over]
            if not unfinished:
                return
        raise AssertionError(f"these never end: {unfinished}")

    def _end_now(self, truth: Truth) -> None:
        self.stage.engine.end(truth.attempt.id, Cause.EXITED, 0)


LateReports.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestLateReports = LateReports.TestCase
