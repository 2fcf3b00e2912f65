"""What the contract suite needs of an engine, and the engines it runs over.

To add one, write a function that makes an `EngineUnderTest` in an empty folder and put it into `ENGINES`. The one
on Slurm needs a cluster besides, and is made by the fixture.
The jobs of the suite are small shell scripts; their environment tells the simulated engine the same.
"""

import getpass
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from bench.private_slurm import PrivateSlurm

from heliostat.config import Home, ServerSettings, Settings
from heliostat.engines.contract import Engine
from heliostat.engines.local.engine import LocalEngine
from heliostat.engines.simulated.clock import ManualClock, RealClock
from heliostat.engines.simulated.cluster import parse_nodes
from heliostat.engines.simulated.engine import (
    EXIT_CODE_VARIABLE,
    IGNORE_TERM_VARIABLE,
    SECONDS_VARIABLE,
    SimulatedEngine,
)
from heliostat.engines.slurm.client import SlurmClient
from heliostat.engines.slurm.engine import SlurmEngine
from heliostat.engines.slurm.polling import SlurmTiming
from heliostat.models import (
    Attempt,
    AttemptEnded,
    AttemptId,
    AttemptStarted,
    Job,
    JobSpec,
    JobState,
    Observation,
    PlacementRequest,
    Resources,
    TaskPlacement,
    format_attempt_id,
)

DEADLINE_SECONDS = 60.0
_numbers = itertools.count(1)


def _nothing() -> None: ...


@dataclass(frozen=True)
class EngineUnderTest:
    make: Callable[[], Engine]  # each call is a new start of Heliostat over the same ground
    runs_commands: bool = True
    shares_devices: bool = True
    deadline_seconds: float = DEADLINE_SECONDS
    let_time_pass: Callable[[], None] = _nothing  # for an engine whose time does not pass by itself
    tear_down: Callable[[], None] = _nothing


def simulated(folder: Path) -> EngineUnderTest:
    clock = RealClock()
    return EngineUnderTest(
        make=lambda: SimulatedEngine(parse_nodes("2x4xA100, 1xcpu"), clock),
        runs_commands=False,
        tear_down=clock.close,
    )


def simulated_with_manual_clock(folder: Path) -> EngineUnderTest:
    clock = ManualClock()
    return EngineUnderTest(
        make=lambda: SimulatedEngine(parse_nodes("2x4xA100, 1xcpu"), clock),
        runs_commands=False,
        let_time_pass=lambda: clock.advance(0.1),
    )


def simulated_surviving_restart(folder: Path) -> EngineUnderTest:
    clock = RealClock()
    return EngineUnderTest(
        make=lambda: SimulatedEngine(parse_nodes("2x4xA100, 1xcpu"), clock, survives_restart=True),
        runs_commands=False,
        tear_down=clock.close,
    )


def local(folder: Path) -> EngineUnderTest:
    """Real processes of this user, limits and all, in an installation of its own."""
    settings = Settings(_made(Home(folder / "home")), server=ServerSettings(simulate_gpus="4xA100"))
    return EngineUnderTest(make=lambda: LocalEngine(settings))


def slurm(folder: Path, cluster: PrivateSlurm) -> EngineUnderTest:
    """Real jobs of this user in a real Slurm."""
    home = _made(Home(folder / "home"))
    client = SlurmClient(home.attempts / "submitting.lock", cluster.env)
    return EngineUnderTest(
        make=lambda: SlurmEngine(Settings(home), client, SlurmTiming(poll_seconds=0.2)),
        shares_devices=False,
        deadline_seconds=60,
    )


def _made(home: Home) -> Home:
    for made in (home.path, home.jobs, home.attempts):
        made.mkdir(mode=0o711, exist_ok=True)
    return home


ENGINES: dict[str, Callable[[Path], EngineUnderTest]] = {
    "simulated": simulated,
    "simulated with a manual clock": simulated_with_manual_clock,
    "simulated, surviving a restart": simulated_surviving_restart,
    "local": local,
}


@dataclass
class Bench:
    """An engine at work, everything it reported, and builders of attempts for it."""

    under_test: EngineUnderTest
    folder: Path
    engine: Engine = field(init=False)
    reports: list[Observation] = field(default_factory=list)
    _begun: dict[AttemptId, Attempt] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Heliostat comes up (again): a new engine that knows only what is on the ground."""
        if hasattr(self, "engine"):
            self.engine.close()
        self.engine = self.under_test.make()
        self.engine.set_observation_callback(self._keep)

    def tear_down(self) -> None:
        for attempt in self._begun.values():
            if not self.ends_of(attempt):
                self.engine.stop(attempt, 0)
        self.engine.close()
        self.under_test.tear_down()

    def finishing(self, exit_code: int = 0) -> Attempt:
        """Ends soon by itself."""
        return self._attempt(f"exit {exit_code}", {SECONDS_VARIABLE: "0.5", EXIT_CODE_VARIABLE: str(exit_code)})

    def saying(self, words: str) -> Attempt:
        """Ends soon by itself. Those that say the same differ only in their numbers."""
        return self._attempt(words, {SECONDS_VARIABLE: "0.5"})

    def leaving_something(self) -> Attempt:
        """Ends soon by itself, but for a process in the background."""
        return self._attempt("sleep 600 & exit 0", {SECONDS_VARIABLE: "0.5"})

    def in_overtime(self, seconds: float) -> Attempt:
        """Runs for so long with a limit of one second that it may exceed."""
        attempt = self._attempt(f"sleep {seconds}", {SECONDS_VARIABLE: str(seconds)}, time_limit_seconds=1)
        return replace(attempt, job=replace(attempt.job, overtime=True))

    def running_long(self, time_limit_seconds: int | None = None) -> Attempt:
        ready = self.folder / f"ready-{next(_numbers)}"
        env = {SECONDS_VARIABLE: "36000", "READY": str(ready)}
        return self._attempt(f": > '{ready}'; exec sleep 600", env, time_limit_seconds)

    def stopping_itself(self, time_limit_seconds: int | None = None) -> Attempt:
        """All of its process group."""
        ready = self.folder / f"ready-{next(_numbers)}"
        env = {SECONDS_VARIABLE: "36000", "READY": str(ready)}
        return self._attempt(f": > '{ready}'; kill -STOP 0; sleep 600", env, time_limit_seconds)

    def until_let_go(self, exit_code: int = 0) -> Attempt:
        """Ends by itself, but not before `let_go`."""
        go = self.folder / f"go-{next(_numbers)}"
        script = f"while [ ! -e '{go}' ]; do sleep 0.01; done; exit {exit_code}"
        return self._attempt(script, {SECONDS_VARIABLE: "0.5", "GO": str(go)})

    def let_go(self, attempt: Attempt) -> None:
        Path(attempt.job.spec.env["GO"]).touch()

    def ignoring_term(self) -> Attempt:
        """Says that it no longer heeds TERM by making a file; see `wait_until_ignoring`."""
        ready = self.folder / f"ready-{next(_numbers)}"
        script = f"trap '' TERM; : > '{ready}'; while :; do sleep 1; done"
        env = {SECONDS_VARIABLE: "36000", IGNORE_TERM_VARIABLE: "1", "READY": str(ready)}
        return self._attempt(script, env)

    def heeding_usr1(self) -> Attempt:
        """Ends with 7 on USR1; TERM does nothing to it."""
        ready = self.folder / f"ready-{next(_numbers)}"
        script = f"trap '' TERM; trap 'exit 7' USR1; : > '{ready}'; while :; do sleep 0.05; done"
        return self._attempt(script, {SECONDS_VARIABLE: "36000", "READY": str(ready)})

    def gang(self, tasks: int, script: str = "exit 0", gpus: float = 1, **simulated: str) -> Attempt:
        """Its tasks on the first node, each with a device of its own; parts of one share the first."""
        single = self._attempt(script, {SECONDS_VARIABLE: "0.5", **simulated})
        node = self.engine.nodes()[0]
        uuids = [device.uuid for device in node.devices]
        places = tuple(TaskPlacement(node.name, (uuids[0 if gpus < 1 else rank],)) for rank in range(tasks))
        job = replace(single.job, resources=Resources(1, 64, gpus), placement=PlacementRequest(tasks=tasks))
        devices = tuple(dict.fromkeys(uuid for place in places for uuid in place.devices))
        return replace(single, job=job, devices=devices, places=places)

    def sharing(self, gpus: float) -> Attempt:
        """Runs long on a part of the first device."""
        attempt = self.running_long()
        device = self.engine.nodes()[0].devices[0].uuid
        job = replace(attempt.job, resources=Resources(1, 64, gpus))
        return replace(attempt, job=job, devices=(device,))

    def wait_until_ignoring(self, attempt: Attempt) -> None:
        self.wait_for_start(attempt)

    def start(self, *attempts: Attempt) -> None:
        self._begun.update({attempt.id: attempt for attempt in attempts})
        self.engine.start(attempts)

    def reports_of(self, attempt: Attempt) -> list[Observation]:
        with self._changed:
            return [report for report in self.reports if report.attempt_id == attempt.id]

    def ends_of(self, attempt: Attempt) -> list[AttemptEnded]:
        return [report for report in self.reports_of(attempt) if isinstance(report, AttemptEnded)]

    def wait_for_start(self, attempt: Attempt) -> None:
        self.wait_until(lambda: bool(self.reports_of(attempt)), f"a report of {attempt.id}")
        assert isinstance(self.reports_of(attempt)[0], AttemptStarted)
        if self.under_test.runs_commands and (ready := attempt.job.spec.env.get("READY")):
            self.wait_until(Path(ready).exists, f"a sign of life of {attempt.id}")

    def wait_for_end(self, attempt: Attempt) -> AttemptEnded:
        self.wait_until(lambda: bool(self.ends_of(attempt)), f"the end of {attempt.id}")
        return self.ends_of(attempt)[0]

    def let_another_one_finish(self) -> None:
        """Whatever was asked of the engine before has had its turn when this one is over."""
        other = self.finishing()
        self.start(other)
        self.wait_for_end(other)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self.under_test.deadline_seconds
        while not condition():
            assert time.monotonic() < deadline, f"Waited in vain for {what}."
            self.under_test.let_time_pass()
            with self._changed:
                self._changed.wait(0.02)

    def _keep(self, observations: Sequence[Observation]) -> None:
        with self._changed:
            self.reports.extend(observations)
            self._changed.notify_all()

    def _attempt(self, script: str, env: dict[str, str], time_limit_seconds: int | None = None) -> Attempt:
        number = next(_numbers)
        user = getpass.getuser()
        job = Job(
            id=number,
            kind="batch",
            name="contract",
            state=JobState.STARTING,
            user=user,
            unix_user=user,
            project="contract",
            resources=Resources(),
            spec=JobSpec(command=("sh", "-c", script), env=env, grace_seconds=0.5),
            submitted_at=datetime.now(UTC),
            time_limit_seconds=time_limit_seconds,
            attempt=1,
        )
        return Attempt(format_attempt_id(number, 1), job, self.engine.nodes()[0].name)


def as_running(attempt: Attempt, started_at: datetime) -> Attempt:
    """The attempt as the store gives it once its start was recorded."""
    job = replace(attempt.job, state=JobState.RUNNING, started_at=started_at, node=attempt.node)
    return replace(attempt, job=job)
