import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.config import Home, ServerSettings, Settings
from heliostat.engines.contract import Engine, RunsPrograms
from heliostat.engines.factory import make_engine
from heliostat.engines.simulated.clock import ManualClock, ScheduledCall
from heliostat.engines.simulated.cluster import parse_nodes
from heliostat.engines.simulated.engine import (
    EXIT_CODE_VARIABLE,
    IGNORE_TERM_VARIABLE,
    OOM_VARIABLE,
    SECONDS_VARIABLE,
    SimulatedEngine,
)
from heliostat.errors import NotFound
from heliostat.models import (
    Attempt,
    AttemptEnded,
    AttemptStarted,
    EndCause,
    Job,
    JobSpec,
    JobState,
    Node,
    NodeState,
    Observation,
    PlacementRequest,
    Resources,
    TaskPlacement,
)

START = datetime(2026, 1, 5, 9, tzinfo=UTC)


class TooLateToCancelClock(ManualClock):
    """Each call is already on its way when somebody cancels it."""

    def call_at(self, at: datetime, call: Callable[[], None]) -> ScheduledCall:
        alarm = super().call_at(at, call)
        return replace(alarm)


class Lab:
    """A simulated engine, its clock, and what it reported."""

    def __init__(
        self,
        nodes: str = "2x4xA100",
        survives_restart: bool = False,
        clock: ManualClock | None = None,
        speed: float = 1.0,
    ) -> None:
        self.clock = clock or ManualClock(START)
        self.engine = SimulatedEngine(
            parse_nodes(nodes), self.clock, speed=speed, survives_restart=survives_restart
        )
        self.reports: list[Observation] = []
        self.engine.set_observation_callback(self.reports.extend)
        self._numbers = itertools.count(1)

    def attempt(
        self,
        env: dict[str, str] | None = None,
        limit: int | None = None,
        node: str = "a100-01",
        gpus: Sequence[int] = (),
        state: JobState = JobState.STARTING,
        started_at: datetime | None = None,
    ) -> Attempt:
        number = next(self._numbers)
        job = Job(
            id=number,
            kind="batch",
            name="train",
            state=state,
            user="ada",
            unix_user="ada",
            project="engines",
            resources=Resources(gpus=len(gpus)),
            spec=JobSpec(command=("python", "train.py"), env=env or {}, grace_seconds=10),
            submitted_at=START,
            started_at=started_at,
            time_limit_seconds=limit,
            attempt=1,
        )
        devices = tuple(self.node(node).devices[index].uuid for index in gpus)
        return Attempt(f"{number}.1", job, node, devices)

    def node(self, name: str) -> Node:
        return next(node for node in self.engine.nodes() if node.name == name)

    def end_of(self, attempt: Attempt) -> AttemptEnded:
        (end,) = [r for r in self.reports if r.attempt_id == attempt.id and isinstance(r, AttemptEnded)]
        return end


def test_it_fulfils_the_contracts() -> None:
    engine: Engine = Lab().engine
    assert not engine.capabilities.survives_restart
    assert not isinstance(engine, RunsPrograms)


def test_nothing_is_reported_from_within_a_call() -> None:
    lab = Lab()
    attempt = lab.attempt()
    lab.engine.start([attempt])
    assert lab.reports == []
    lab.clock.advance(0)
    assert lab.reports == [AttemptStarted(attempt.id, START)]


def test_at_a_higher_speed_no_reported_time_lies_in_the_future(tmp_path: Path) -> None:
    server = ServerSettings(engine="simulated", simulated_nodes="1xcpu", simulated_speed=1000)
    engine, has_ended = make_engine(Settings(Home(tmp_path), server=server)), threading.Event()
    reported: list[tuple[Observation, datetime]] = []

    def report(observations: Sequence[Observation]) -> None:
        reported.extend((observation, datetime.now(UTC)) for observation in observations)
        if any(isinstance(observation, AttemptEnded) for observation in observations):
            has_ended.set()

    engine.set_observation_callback(report)
    engine.start([Lab("1xcpu").attempt({SECONDS_VARIABLE: "60"}, node="cpu-01")])
    assert has_ended.wait(120)
    engine.close()
    (started, _), (ended, _) = reported
    assert all(observation.at <= seen_at for observation, seen_at in reported)
    assert ended.at - started.at == timedelta(seconds=0.06)


def test_time_limits_and_grace_periods_pass_at_the_speed_of_the_simulation() -> None:
    lab = Lab(speed=10)
    timed_out = lab.attempt({SECONDS_VARIABLE: "inf", IGNORE_TERM_VARIABLE: "1"}, limit=60)
    stopped = lab.attempt({SECONDS_VARIABLE: "inf", IGNORE_TERM_VARIABLE: "1"})
    lab.engine.start([timed_out, stopped])
    lab.clock.advance(2)
    lab.engine.stop(stopped, grace_seconds=10)
    lab.clock.advance(60)
    assert lab.end_of(stopped).at == START + timedelta(seconds=2 + 1)
    assert lab.end_of(timed_out).at == START + timedelta(seconds=6 + 1)


def test_a_run_that_is_endless_at_a_low_speed_has_no_end() -> None:
    lab = Lab(speed=0.001)
    lab.engine.start([lab.attempt({SECONDS_VARIABLE: "9e8"})])
    lab.clock.advance(1e6)
    assert len(lab.reports) == 1


def test_without_a_word_in_its_environment_a_job_runs_a_minute_and_succeeds() -> None:
    lab = Lab()
    attempt = lab.attempt()
    lab.engine.start([attempt])
    lab.clock.advance(59.9)
    assert len(lab.reports) == 1
    lab.clock.advance(1)
    assert lab.end_of(attempt) == AttemptEnded(attempt.id, START + timedelta(minutes=1), EndCause.EXITED, 0)


def test_running_out_of_memory_is_its_own_cause() -> None:
    lab = Lab()
    attempt = lab.attempt({OOM_VARIABLE: "1", SECONDS_VARIABLE: "5"})
    lab.engine.start([attempt])
    lab.clock.advance(5)
    assert (lab.end_of(attempt).cause, lab.end_of(attempt).exit_code) == (EndCause.OUT_OF_MEMORY, 137)


@given(
    run=st.floats(0, 10_000),
    limit=st.none() | st.integers(1, 10_000),
    stop=st.none() | st.floats(0, 10_000),
    exit_code=st.integers(0, 255),
)
def test_the_end_is_the_earliest_of_run_limit_and_stop(
    run: float, limit: int | None, stop: float | None, exit_code: int
) -> None:
    lab = Lab()
    attempt = lab.attempt({SECONDS_VARIABLE: str(run), EXIT_CODE_VARIABLE: str(exit_code)}, limit)
    lab.engine.start([attempt])
    if stop is not None:
        lab.clock.advance(stop)
        lab.engine.stop(attempt, grace_seconds=30)
    lab.clock.advance(10_001)
    seconds = min(x for x in (run, limit, stop) if x is not None)
    end = lab.end_of(attempt)
    assert end.at - START == pytest.approx(timedelta(seconds=seconds), abs=timedelta(microseconds=2))
    assert end.exit_code == (exit_code if end.cause is EndCause.EXITED else 143)
    if seconds < min(x for x in (limit, stop, 10**6) if x is not None):
        assert end.cause is EndCause.EXITED


def test_what_ignores_term_ends_when_the_grace_is_over() -> None:
    lab = Lab()
    stopped = lab.attempt({SECONDS_VARIABLE: "inf", IGNORE_TERM_VARIABLE: "1"})
    timed_out = lab.attempt({SECONDS_VARIABLE: "inf", IGNORE_TERM_VARIABLE: "1"}, limit=60)
    lab.engine.start([stopped, timed_out])
    lab.clock.advance(20)
    lab.engine.stop(stopped, grace_seconds=5)
    lab.clock.advance(100)
    assert lab.end_of(stopped) == AttemptEnded(stopped.id, START + timedelta(seconds=25), EndCause.STOPPED, 137)
    assert lab.end_of(timed_out) == AttemptEnded(
        timed_out.id, START + timedelta(seconds=70), EndCause.TIMED_OUT, 137
    )


def test_a_second_stop_with_more_grace_does_not_prolong_the_first() -> None:
    lab = Lab()
    attempt = lab.attempt({SECONDS_VARIABLE: "inf", IGNORE_TERM_VARIABLE: "1"})
    lab.engine.start([attempt])
    lab.engine.stop(attempt, grace_seconds=5)
    lab.clock.advance(2)
    lab.engine.stop(attempt, grace_seconds=50)
    lab.clock.advance(100)
    assert lab.end_of(attempt).at == START + timedelta(seconds=5)


def test_an_end_on_its_way_while_the_attempt_is_stopped_is_not_reported() -> None:
    lab = Lab(clock=TooLateToCancelClock(START))
    attempt = lab.attempt({SECONDS_VARIABLE: "inf", IGNORE_TERM_VARIABLE: "1"})
    lab.engine.start([attempt])
    lab.engine.stop(attempt, grace_seconds=50)
    lab.engine.stop(attempt, grace_seconds=5)
    lab.clock.advance(100)
    assert lab.end_of(attempt).at == START + timedelta(seconds=5)


def test_an_end_on_its_way_while_another_came_first_is_not_reported() -> None:
    lab = Lab(clock=TooLateToCancelClock(START))
    attempt = lab.attempt({SECONDS_VARIABLE: "60"}, limit=100)
    lab.engine.start([attempt])
    lab.clock.advance(10)
    lab.engine.fail_node("a100-01")
    lab.clock.advance(100)
    assert lab.end_of(attempt).cause is EndCause.LOST


def test_a_stop_at_the_very_end_changes_the_cause_and_not_the_number_of_ends() -> None:
    lab = Lab(clock=TooLateToCancelClock(START))
    attempt = lab.attempt({SECONDS_VARIABLE: "60", IGNORE_TERM_VARIABLE: "1", EXIT_CODE_VARIABLE: "7"})
    lab.engine.start([attempt])
    lab.clock.advance(59)
    lab.engine.stop(attempt, grace_seconds=30)
    lab.clock.advance(100)
    assert lab.end_of(attempt) == AttemptEnded(attempt.id, START + timedelta(seconds=60), EndCause.STOPPED, 7)


def test_an_endless_job_runs_until_it_is_stopped() -> None:
    lab = Lab()
    attempt = lab.attempt({SECONDS_VARIABLE: "inf"})
    lab.engine.start([attempt])
    lab.clock.advance(10**8)
    lab.engine.stop(attempt, grace_seconds=0)
    lab.clock.advance(0)
    assert (lab.end_of(attempt).cause, lab.end_of(attempt).exit_code) == (EndCause.STOPPED, 143)


@pytest.mark.parametrize(
    "env",
    [
        {SECONDS_VARIABLE: "soon"},
        {SECONDS_VARIABLE: "-1"},
        {SECONDS_VARIABLE: "nan"},
        {EXIT_CODE_VARIABLE: "256"},
        {EXIT_CODE_VARIABLE: "x"},
    ],
)
def test_an_environment_that_cannot_be_read_is_refused(env: dict[str, str]) -> None:
    lab = Lab()
    attempt = lab.attempt(env)
    lab.engine.start([attempt])
    lab.clock.advance(0)
    assert lab.end_of(attempt).cause is EndCause.REFUSED
    assert lab.end_of(attempt).detail


def test_a_device_that_is_held_is_refused_to_a_second_attempt_and_free_after_the_end() -> None:
    lab = Lab()
    first, second, third = (lab.attempt(gpus=[0, 1]) for _ in range(3))
    lab.engine.start([first, second])
    lab.clock.advance(60)
    lab.engine.start([third])
    lab.clock.advance(60)
    assert [lab.end_of(a).cause for a in (first, second, third)] == [
        EndCause.EXITED,
        EndCause.REFUSED,
        EndCause.EXITED,
    ]


def test_a_report_may_start_the_next_attempt_on_the_same_device() -> None:
    lab = Lab()
    attempts = [lab.attempt(gpus=[0]) for _ in range(5)]
    waiting = iter(attempts)

    def start_next(observations: Sequence[Observation]) -> None:
        for observation in observations:
            if isinstance(observation, AttemptEnded) and (following := next(waiting, None)):
                lab.engine.start([following])

    lab.engine.set_observation_callback(start_next)
    lab.engine.start([next(waiting)])
    lab.clock.advance(300)
    assert [lab.end_of(attempt).at for attempt in attempts] == [START + timedelta(minutes=n) for n in range(1, 6)]


def test_a_failing_node_goes_down_and_loses_what_it_runs_and_nothing_else() -> None:
    lab = Lab()
    changes: list[NodeState] = []
    lab.engine.set_nodes_changed_callback(lambda: changes.append(lab.node("a100-01").state))
    there, elsewhere = lab.attempt(gpus=[0]), lab.attempt(node="a100-02", gpus=[0])
    lab.engine.start([there, elsewhere])
    lab.clock.advance(10)
    lab.engine.fail_node("a100-01", "A fan broke.")
    lab.clock.advance(100)
    assert (lab.node("a100-01").state, lab.node("a100-01").reason) == (NodeState.DOWN, "A fan broke.")
    assert lab.end_of(there) == AttemptEnded(
        there.id, START + timedelta(seconds=10), EndCause.LOST, None, "A fan broke."
    )
    assert lab.end_of(elsewhere).cause is EndCause.EXITED
    assert changes == [NodeState.DOWN]


def test_a_node_that_is_down_starts_nothing_until_it_is_restored() -> None:
    lab = Lab()
    early, late = lab.attempt(gpus=[0]), lab.attempt(gpus=[0])
    lab.engine.fail_node("a100-01")
    lab.engine.start([early])
    lab.engine.restore_node("a100-01")
    lab.engine.start([late])
    lab.clock.advance(60)
    assert lab.end_of(early).cause is EndCause.NOT_STARTED
    assert lab.end_of(late).cause is EndCause.EXITED
    assert lab.node("a100-01").state is NodeState.UP


def test_a_node_nobody_knows_cannot_fail() -> None:
    with pytest.raises(NotFound):
        Lab().engine.fail_node("a100-99")


def test_an_attempt_on_a_node_nobody_knows_is_refused() -> None:
    lab = Lab()
    attempt = lab.attempt()
    lost = Attempt(attempt.id, attempt.job, "a100-99")
    lab.engine.start([lost])
    lab.clock.advance(0)
    assert lab.end_of(lost).cause is EndCause.REFUSED


def test_after_a_restart_what_was_running_is_lost() -> None:
    lab = Lab()
    attempt = lab.attempt(state=JobState.RUNNING, started_at=START)
    (observed,) = lab.engine.observe([attempt])
    assert isinstance(observed, AttemptEnded)
    assert observed.cause is EndCause.LOST


def test_told_to_survive_it_takes_up_what_was_running_where_it_would_be() -> None:
    lab = Lab(survives_restart=True)
    lab.clock.advance(50)
    runs = lab.attempt({SECONDS_VARIABLE: "60"}, state=JobState.RUNNING, started_at=START, gpus=[0])
    ended = lab.attempt(
        {SECONDS_VARIABLE: "20", EXIT_CODE_VARIABLE: "3"}, state=JobState.RUNNING, started_at=START, gpus=[1]
    )
    assert lab.engine.observe([runs, ended]) == [
        AttemptStarted(runs.id, START),
        AttemptEnded(ended.id, START + timedelta(seconds=20), EndCause.EXITED, 3),
    ]
    lab.clock.advance(60)
    assert lab.end_of(runs).at == START + timedelta(seconds=60)
    assert {report.attempt_id for report in lab.reports} == {runs.id}


def test_devices_are_busy_while_held_and_idle_otherwise() -> None:
    lab = Lab()
    attempt = lab.attempt({SECONDS_VARIABLE: "3600"}, gpus=[1])
    lab.engine.start([attempt])
    lab.clock.advance(600)
    idle, busy = lab.node("a100-01").devices[:2]
    assert (idle.utilisation, idle.processes) == (0, ())
    assert busy.memory_used_mib > 1000
    assert busy.processes[0].user == "ada"
    lab.clock.advance(3600)
    assert lab.node("a100-01").devices == parse_nodes("2x4xA100")[0].devices


def test_looking_again_at_once_costs_nothing_new() -> None:
    lab = Lab()
    lab.engine.start([lab.attempt(gpus=[0])])
    assert all(a is b for a, b in zip(lab.engine.nodes(), lab.engine.nodes(), strict=True))


def test_a_closed_engine_reports_and_starts_nothing() -> None:
    lab = Lab()
    lab.engine.start([lab.attempt()])
    lab.engine.close()
    lab.engine.start([lab.attempt()])
    lab.clock.advance(1000)
    assert lab.reports == []


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 19)),
        st.tuples(st.just("stop"), st.integers(0, 19)),
        st.tuples(st.just("observe"), st.integers(0, 19)),
        st.tuples(st.just("fail"), st.integers(1, 2)),
        st.tuples(st.just("restore"), st.integers(1, 2)),
        st.tuples(st.just("advance"), st.integers(0, 100)),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_whatever_happens_each_attempt_starts_at_most_once_and_ends_once_after_it(
    steps: list[tuple[str, int]],
) -> None:
    lab = Lab()
    attempts = [
        lab.attempt(
            {SECONDS_VARIABLE: str(n * 7), IGNORE_TERM_VARIABLE: str(n % 2)}, 100, f"a100-0{1 + n % 2}", [n % 4]
        )
        for n in range(20)
    ]
    asked: set[str] = set()
    disowned: set[str] = set()
    for verb, number in steps:
        if verb == "start":
            lab.engine.start([attempts[number]])
            asked.add(attempts[number].id)
        elif verb == "stop":
            lab.engine.stop(attempts[number], grace_seconds=5)
        elif verb == "observe":
            lab.engine.observe([attempts[number]])
            disowned |= {attempts[number].id} - asked
        elif verb == "fail":
            lab.engine.fail_node(f"a100-0{number}")
        elif verb == "restore":
            lab.engine.restore_node(f"a100-0{number}")
        else:
            lab.clock.advance(number)
    lab.clock.advance(1000)
    for attempt in attempts:
        kinds = [type(report) for report in lab.reports if report.attempt_id == attempt.id]
        if attempt.id in disowned or attempt.id not in asked:
            assert kinds == []
        else:
            assert kinds in ([AttemptStarted, AttemptEnded], [AttemptEnded])
    assert all(
        node.devices == plain.devices
        for node, plain in zip(lab.engine.nodes(), parse_nodes("2x4xA100"), strict=True)
    )


def on(attempt: Attempt, *places: TaskPlacement, gpus: float = 1) -> Attempt:
    """The attempt with a task at each of these places."""
    job = replace(attempt.job, resources=Resources(gpus=gpus), placement=PlacementRequest(tasks=len(places)))
    devices = tuple(uuid for place in places for uuid in place.devices)
    return replace(attempt, job=job, node=places[0].node, devices=devices, places=places)


def place(lab: Lab, node: str, *indexes: int) -> TaskPlacement:
    return TaskPlacement(node, tuple(lab.node(node).devices[index].uuid for index in indexes))


def test_a_gang_holds_its_devices_on_all_its_nodes_until_it_ends() -> None:
    lab = Lab()
    gang = on(lab.attempt(), place(lab, "a100-01", 0), place(lab, "a100-02", 3))
    lab.engine.start([gang])
    for node, index in (("a100-01", 0), ("a100-02", 3)):
        rival = lab.attempt(node=node, gpus=[index])
        lab.engine.start([rival])
        lab.clock.advance(0)
        assert lab.end_of(rival).cause is EndCause.REFUSED
        assert gang.id in str(lab.end_of(rival).detail)
    lab.clock.advance(60)
    assert lab.end_of(gang).exit_code == 0
    heir = lab.attempt(node="a100-02", gpus=[3])
    lab.engine.start([heir])
    lab.clock.advance(60)
    assert lab.end_of(heir).exit_code == 0


def test_a_gang_that_cannot_have_all_takes_nothing() -> None:
    lab = Lab()
    lab.engine.start([lab.attempt(node="a100-02", gpus=[0])])
    gang = on(lab.attempt(), place(lab, "a100-01", 0), place(lab, "a100-02", 0))
    single = lab.attempt(gpus=[0])
    lab.engine.start([gang, single])
    lab.clock.advance(0)
    assert lab.end_of(gang).cause is EndCause.REFUSED
    assert AttemptStarted(single.id, START) in lab.reports


@pytest.mark.parametrize("name", ["a100-01", "a100-02"])
def test_a_node_that_fails_ends_the_gangs_that_touch_it(name: str) -> None:
    lab = Lab("3x4xA100")
    gang = on(lab.attempt(), place(lab, "a100-01", 0), place(lab, "a100-02", 0))
    elsewhere = lab.attempt(node="a100-03")
    lab.engine.start([gang, elsewhere])
    lab.engine.fail_node(name)
    lab.clock.advance(0)
    assert lab.end_of(gang).cause is EndCause.LOST
    assert not any(isinstance(r, AttemptEnded) and r.attempt_id == elsewhere.id for r in lab.reports)


def test_a_gang_waits_for_no_node_that_is_down() -> None:
    lab = Lab()
    lab.engine.fail_node("a100-02")
    gang = on(lab.attempt(), place(lab, "a100-01", 0), place(lab, "a100-02", 0))
    lab.engine.start([gang])
    lab.clock.advance(0)
    assert lab.end_of(gang).cause is EndCause.NOT_STARTED


def test_a_device_is_shared_up_to_the_whole_of_it() -> None:
    lab = Lab()
    parts = [on(lab.attempt(), place(lab, "a100-01", 0), gpus=part) for part in (0.33, 0.33, 0.34, 0.01)]
    lab.engine.start(parts)
    lab.clock.advance(0)
    assert [AttemptStarted(part.id, START) in lab.reports for part in parts] == [True, True, True, False]
    assert lab.end_of(parts[3]).cause is EndCause.REFUSED
    lab.engine.stop(parts[0], grace_seconds=0)
    lab.clock.advance(0)
    heir = on(lab.attempt(), place(lab, "a100-01", 0), gpus=0.3)
    lab.engine.start([heir])
    lab.clock.advance(0)
    assert AttemptStarted(heir.id, START) in lab.reports


def test_tasks_of_one_gang_may_share_a_device_but_not_more_than_there_is() -> None:
    lab = Lab()
    first, shared = place(lab, "a100-01", 0), place(lab, "a100-01", 1)
    fits = on(lab.attempt(), first, first, gpus=0.5)
    too_much = on(lab.attempt(), shared, shared, gpus=0.6)
    lab.engine.start([fits, too_much])
    lab.clock.advance(0)
    assert AttemptStarted(fits.id, START) in lab.reports
    assert lab.end_of(too_much).cause is EndCause.REFUSED


def test_a_job_with_overtime_runs_on_past_its_limit_until_it_is_stopped() -> None:
    lab = Lab()
    attempt = lab.attempt({SECONDS_VARIABLE: "3600"}, limit=60)
    attempt = replace(attempt, job=replace(attempt.job, overtime=True))
    lab.engine.start([attempt])
    lab.clock.advance(600)
    assert lab.reports == [AttemptStarted(attempt.id, START)]
    lab.engine.stop(attempt, grace_seconds=10, signal="USR1")
    lab.clock.advance(0)
    assert lab.end_of(attempt).cause is EndCause.STOPPED
