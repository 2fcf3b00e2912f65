"""Reports that are late, repeated or out of order, crashes and a full disk, in any order one can think of."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from chaos.stage import Stage, Truth
from heliostat.errors import Conflict
from heliostat.models import (
    TERMINAL_STATES,
    AttemptEnded,
    AttemptRecord,
    AttemptStarted,
    EndCause,
    Job,
    JobId,
    JobState,
    Resources,
    may_transition,
)
from support.hypothesis_examples import example_count

_ENDS = (
    (EndCause.EXITED, 0),
    (EndCause.LOST, None),
    (EndCause.EXITED, 3),
    (EndCause.TIMED_OUT, 143),
    (EndCause.OUT_OF_MEMORY, 137),
)

T = TypeVar("T")
_MOST = 3  # unfinished jobs at once: few, so that much happens to each


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "home")
    yield stage
    stage.close()


def test_a_repeated_end_of_a_requeued_attempt_does_not_cancel_the_waiting_job(stage: Stage) -> None:
    job_id = stage.submit()
    stage.settle()
    stage.engine.open(False)
    stage.ask("requeue", job_id)
    stage.settle()
    ended = stage.engine.end(f"{job_id}.1", EndCause.STOPPED, 143)
    for _ in range(2):
        stage.engine.tell(ended)
        stage.settle()
        assert stage.job(job_id).state is JobState.PENDING
    stage.ask("hold", job_id)
    stage.engine.tell(ended)
    stage.settle()
    assert stage.job(job_id).state is JobState.HELD


@pytest.mark.parametrize(
    "cause", [EndCause.EXITED, EndCause.STOPPED, EndCause.LOST, EndCause.TIMED_OUT, EndCause.NOT_STARTED]
)
def test_a_late_end_of_the_first_attempt_does_not_touch_the_second(stage: Stage, cause: EndCause) -> None:
    job_id = stage.submit(max_retries=1)
    stage.settle()
    first = stage.engine.end(f"{job_id}.1", EndCause.LOST)
    stage.engine.tell(first)
    stage.settle()
    stage.engine.tell(AttemptStarted(f"{job_id}.2", stage.clock()))
    stage.settle()
    before, attempts = stage.job(job_id), stage.attempts(job_id)
    assert (before.state, before.attempt) == (JobState.RUNNING, 2)
    late = AttemptEnded(f"{job_id}.1", stage.clock(), cause, 0)
    stage.engine.tell(late, AttemptStarted(f"{job_id}.1", stage.clock()), late)
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


class World:
    """What may be told is always true; when and how often it is told is not. Checked after every step."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.over: dict[JobId, Job] = {}
        self.ended: dict[tuple[JobId, int], AttemptRecord] = {}
        self.cancels: set[JobId] = set()

    def submit(self, one: int, other: int) -> None:
        if self._unfinished() < _MOST:
            state = JobState.HELD if one == 7 else JobState.PENDING
            resources = Resources(1, 16, gpus=1 + other % 2)
            self.stage.submit(priority=one % 3, max_retries=other % 3, resources=resources, state=state)

    def requeue(self, one: int, other: int) -> None:
        self._ask("requeue", one)

    def cancel(self, one: int, other: int) -> None:
        if other < 3 and (job_id := self._ask("cancel", one)):
            self.cancels.add(job_id)

    def hold_or_release(self, one: int, other: int) -> None:
        self._ask("hold" if other % 2 else "release", one)

    def end(self, one: int, other: int) -> None:
        """It really ends; perhaps that is told at once."""
        if truth := _pick(self.stage.engine.running(), one):
            ended = self._end(truth, *_ENDS[other % len(_ENDS)])
            if one % 2:
                self.stage.engine.tell(ended)

    def tell(self, one: int, other: int) -> None:
        """What is true of some attempts, old ones too, perhaps not for the first time, perhaps out of order."""
        truths = list(reversed(self.stage.engine.truths.values()))
        for number in (one, other):
            if truth := _pick(truths, number):
                started = AttemptStarted(truth.attempt.id, self.stage.clock())
                self.stage.engine.tell(*([truth.ended] if truth.ended else []), *([started] if other % 2 else []))

    def restart(self, one: int, other: int) -> None:
        self.stage.restart()

    def crash_between_recording_a_start_and_carrying_it_out(self, one: int, other: int) -> None:
        self.stage.engine.is_deaf = True
        self.submit(one, other)
        self.stage.settle()
        self.stage.restart()

    def tell_while_the_disk_is_full(self, one: int, other: int) -> None:
        write = self.stage.store.write
        self.stage.fail_next_write()
        self.tell(one, other)
        self.stage.settle()
        self.stage.store.write = write  # type: ignore[method-assign]

    def open_or_close_the_node(self, one: int, other: int) -> None:
        self.stage.engine.open(bool(one % 2))

    def settle(self, one: int, other: int) -> None:
        self.stage.settle()

    def check(self) -> None:
        for job in self.stage.jobs():
            self._check_that_terminal_states_never_change(job)
            self._check_that_ended_attempts_never_change(job)
            if job.state in TERMINAL_STATES:
                self._check_that_the_end_is_that_of_the_newest_attempt(job)
        self._check_that_every_move_was_allowed()

    def let_everything_end(self) -> None:
        """However it came so far: nothing is stuck, everything reaches an end."""
        self.stage.engine.open(True)
        for _ in range(100):
            self.stage.settle()
            unfinished = [job for job in self.stage.jobs() if not job.is_terminal]
            if not unfinished:
                return
            for job in unfinished:
                if job.state is JobState.HELD:
                    self.stage.ask("release", job.id)
            for truth in self.stage.engine.truths.values():
                self.stage.engine.tell(truth.ended or self._end(truth, EndCause.EXITED, 0))
        raise AssertionError(f"these never end: {unfinished}")

    def _check_that_terminal_states_never_change(self, job: Job) -> None:
        if job.is_terminal:
            assert self.over.setdefault(job.id, job) == job
        else:
            assert job.id not in self.over

    def _check_that_ended_attempts_never_change(self, job: Job) -> None:
        for record in self.stage.attempts(job.id):
            if record.ended_at is not None:
                assert self.ended.setdefault((job.id, record.number), record) == record
            else:
                assert record.number == job.attempt, "only the newest attempt may be without an end"

    def _check_that_every_move_was_allowed(self) -> None:
        states: dict[JobId, tuple[JobState, int]] = {}
        for event in self.stage.events():
            before, attempt = states.get(event.job_id, (event.state, 0))
            if not event.kind.endswith(("submitted", "_requested")):
                assert may_transition(before, event.state), f"{event} after {before}"
            assert event.attempt >= attempt, f"{event} after attempt {attempt}"
            states[event.job_id] = (event.state, event.attempt)

    def _check_that_the_end_is_that_of_the_newest_attempt(self, job: Job) -> None:
        truth = self.stage.engine.truths.get(job.attempt_id)
        if job.state is JobState.CANCELLED:
            assert job.id in self.cancels, "nobody asked for it"
            assert truth is None or truth.ended is not None, "it still runs"
            return
        assert truth is not None
        assert truth.ended is not None
        assert job.exit_code == truth.ended.exit_code
        expected = {
            EndCause.TIMED_OUT: JobState.TIMED_OUT,
            EndCause.OUT_OF_MEMORY: JobState.FAILED,
            EndCause.LOST: JobState.LOST,
            EndCause.EXITED: JobState.COMPLETED if truth.ended.exit_code == 0 else JobState.FAILED,
        }
        assert job.state is expected[truth.ended.cause]

    def _ask(self, verb: str, number: int) -> JobId | None:
        job = _pick([job for job in self.stage.jobs() if not job.is_terminal], number)
        if job is None:
            return None
        try:
            return self.stage.ask(verb, job.id).id
        except Conflict:
            return None

    def _end(self, truth: Truth, cause: EndCause, exit_code: int | None) -> AttemptEnded:
        if truth.stop_asked and cause is EndCause.EXITED:
            cause = EndCause.STOPPED  # as engines say it, whatever the exit code
        return self.stage.engine.end(truth.attempt.id, cause, exit_code)

    def _unfinished(self) -> int:
        return sum(not job.is_terminal for job in self.stage.jobs())


def _pick(things: Sequence[T], number: int) -> T | None:
    return things[number % len(things)] if things else None


_STEPS = (
    World.submit,
    World.requeue,
    World.end,
    World.tell,
    World.settle,
    World.open_or_close_the_node,
    World.cancel,
    World.hold_or_release,
    World.restart,
    World.tell_while_the_disk_is_full,
    World.crash_between_recording_a_start_and_carrying_it_out,
)
_SOMETIMES_WITHOUT = (World.end, World.tell, World.cancel)  # the controller may hear of several things at once
_WALKS = st.lists(
    st.tuples(st.sampled_from(_STEPS), st.integers(0, 7), st.integers(0, 7)), min_size=40, max_size=80
)


@settings(
    max_examples=example_count(30),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking takes minutes; the walk is short to read
)
@given(walk=_WALKS)
def test_whatever_is_told_whenever_each_job_ends_once_and_as_its_newest_attempt_did(
    walk: list[tuple[Callable[[World, int, int], None], int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder) / "home")
        world = World(stage)
        try:
            for step, one, other in walk:
                step(world, one, other)
                if step not in _SOMETIMES_WITHOUT or other % 4:
                    stage.settle()
                world.check()
            world.let_everything_end()
            world.check()
        finally:
            stage.close()
