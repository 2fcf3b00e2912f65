"""The real store and the real controller, stepped by hand, over an engine that says what and when a test wants."""

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from heliostat.auth.authentication import Authenticator
from heliostat.config import Home, Settings
from heliostat.controller.controller import Controller, ControllerComponents
from heliostat.controller.forecaster import Forecaster
from heliostat.controller.node_inventory import NodeInventory
from heliostat.controller.shares_and_quotas import SchedulingRules
from heliostat.engines.contract import Capabilities, LeftoverAttempt, ObservationCallback
from heliostat.errors import StoreUnavailable
from heliostat.models import (
    Attempt,
    AttemptEnded,
    AttemptId,
    AttemptRecord,
    AttemptStarted,
    Caller,
    Device,
    EndCause,
    Job,
    JobEvent,
    JobId,
    JobSpec,
    JobState,
    Node,
    NodeState,
    Observation,
    Resources,
)
from heliostat.services.context import Context
from heliostat.services.jobs import control as services
from heliostat.store import job_writes
from heliostat.store import jobs as stored
from heliostat.store.database import Store, Transaction
from heliostat.store.samples import SampleStore
from heliostat.store.uploads import UploadStore
from support.new_database import create_database

NODE = Node("here", 4, 4096, tuple(Device(f"GPU-{n}", n, "A100", "A100", 1024) for n in range(2)))


class Clock:
    """A wall clock that somebody sets."""

    def __init__(self) -> None:
        self.time = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return self.time

    def jump(self, **by: float) -> None:
        self.time += timedelta(**by)


@dataclass
class Truth:
    """What is really so of an attempt."""

    attempt: Attempt
    stop_asked: bool = False
    ended: AttemptEnded | None = None


class TalkativeEngine:
    """Attempts end when the test says so; true reports come when the test says so, as often as it likes."""

    name = "talkative"
    capabilities = Capabilities()

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._report: ObservationCallback = lambda observations: None
        self.truths: dict[AttemptId, Truth] = {}
        self.disowned: set[AttemptId] = set()
        self.is_deaf = False  # as if the server had died before it could start anything
        self.stops: list[AttemptId] = []
        self.fails_to_stop = 0  # how often stopping fails before it works
        self.node = NODE
        self._nodes_changed: Callable[[], None] = lambda: None

    def set_observation_callback(self, report: ObservationCallback) -> None:
        self._report = report

    def set_nodes_changed_callback(self, changed: Callable[[], None]) -> None:
        self._nodes_changed = changed

    def nodes(self) -> list[Node]:
        return [self.node]

    def open(self, is_open: bool) -> None:
        """A node that is down starts nothing more; what runs there goes on."""
        self.node = replace(NODE, state=NodeState.UP if is_open else NodeState.DOWN)
        self._nodes_changed()

    def start(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            if self.is_deaf or attempt.id in self.truths or attempt.id in self.disowned:
                continue
            for other in self.running():
                assert other.attempt.job.id != attempt.job.id, f"{other.attempt.id} still runs"
                shared = set(other.attempt.devices) & set(attempt.devices)
                assert not shared, f"{other.attempt.id} and {attempt.id} both have {shared}"
            self.truths[attempt.id] = Truth(attempt)

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        return [self._observe(attempt) for attempt in attempts]

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        if self.fails_to_stop:
            self.fails_to_stop -= 1
            raise OSError("told by the test")
        self.stops.append(attempt.id)
        if truth := self.truths.get(attempt.id):
            truth.stop_asked = True

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None: ...

    def forget_all_except(self, attempt_ids: Collection[AttemptId]) -> None: ...

    def recorded_attempts(self) -> set[AttemptId]:
        return set()

    def find_leftovers(self, attempt_ids: Iterable[AttemptId]) -> list[LeftoverAttempt]:
        return []

    def close(self) -> None: ...

    def running(self) -> list[Truth]:
        return [truth for truth in self.truths.values() if truth.ended is None]

    def end(self, attempt_id: AttemptId, cause: EndCause, exit_code: int | None = None) -> AttemptEnded:
        """It really ends like this; nobody is told yet."""
        truth = self.truths[attempt_id]
        assert truth.ended is None
        truth.ended = AttemptEnded(attempt_id, self._clock(), cause, exit_code, "told by the test")
        return truth.ended

    def tell(self, *observations: Observation) -> None:
        self._report(observations)

    def _observe(self, attempt: Attempt) -> Observation:
        truth = self.truths.get(attempt.id)
        if truth is None:
            self.disowned.add(attempt.id)
            return AttemptEnded(attempt.id, self._clock(), EndCause.NOT_STARTED)
        return truth.ended or AttemptStarted(attempt.id, self._clock())


class _NoThread:
    """Instead of the controller's own thread: the test takes the steps."""

    def start(self) -> None: ...

    def is_alive(self) -> bool:
        return False


class Stage:
    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.engine = TalkativeEngine(self.clock)
        self.home = Home(folder)
        self.settings = Settings(self.home)
        folder.mkdir(parents=True, exist_ok=True)
        create_database(self.home.database)
        self.store = Store(self.home.database)
        authenticator = Authenticator(self.store, self.settings.auth, self.clock)
        self.caller = Caller(authenticator.authenticate_peer(os.geteuid()), "socket", "test")
        self._identities = authenticator
        self._begin_controller()

    def close(self) -> None:
        self.store.close()

    def restart(self) -> None:
        """A new server over the same database and the same world."""
        self.store.close()
        self.store = Store(self.home.database)
        self.engine.is_deaf = False
        self._begin_controller()
        self.settle()

    def settle(self) -> None:
        """Until the controller has nothing left to do, as its own thread would do it."""
        controller = self.controller
        for _ in range(100):
            if controller._inbox.is_empty:
                return
            inbox = controller._inbox.take(controller._seconds_to_next_retry)
            try:
                controller._handle(inbox)
            except (StoreUnavailable, OSError) as error:
                controller._recover(inbox, error)
        raise AssertionError("the controller finds no rest")

    def fail_next_write(self) -> None:
        """The disk is full, for one transaction."""
        write = self.store.write

        def refuse(change: Callable[[Transaction], Any]) -> Any:
            self.store.write = write  # type: ignore[method-assign]
            raise StoreUnavailable("The database cannot be written: told by the test.")

        self.store.write = refuse  # type: ignore[method-assign]

    def submit(self, **fields: Any) -> JobId:
        def change(tx: Transaction) -> JobId:
            job = Job(
                id=tx.ids.allocate("jobs")[0],
                kind="batch",
                name="job",
                state=JobState.PENDING,
                user=self.caller.user.name,
                unix_user="nobody",
                project=self.settings.auth.default_project,
                resources=Resources(1, 16, 1),
                spec=JobSpec(("true",)),
                submitted_at=self.clock(),
            )
            job = replace(job, **fields)
            job_writes.add_jobs(tx, [job])
            return job.id

        return self.store.write(change)

    def ask(self, verb: str, job_id: JobId) -> Job:
        """cancel, hold, release or requeue."""
        asked: Job = getattr(services, f"{verb}_job")(self.context, self.caller, job_id)
        return asked

    def job(self, job_id: JobId) -> Job:
        with self.store.read() as conn:
            job = stored.get_job(conn, job_id)
        assert job is not None
        return job

    def jobs(self) -> list[Job]:
        with self.store.read() as conn:
            return stored.list_jobs(conn, stored.JobFilter(), 1000)

    def attempts(self, job_id: JobId) -> list[AttemptRecord]:
        with self.store.read() as conn:
            return stored.list_attempts(conn, job_id)

    def events(self) -> list[JobEvent]:
        with self.store.read() as conn:
            return stored.list_events(conn, 0, 100_000)

    def _begin_controller(self) -> None:
        fleet, rules = NodeInventory(self.engine, self.store), SchedulingRules(self.store)
        self.controller = Controller(
            ControllerComponents(self.store, self.engine, fleet, rules, self.settings),
            self.clock,
            retry_seconds=0.0,
        )
        self.controller._thread = _NoThread()  # type: ignore[assignment]
        self.context = Context(
            self.settings,
            self.store,
            self.engine,
            fleet,
            self.controller,
            self._identities,
            SchedulingRules(self.store),
            Forecaster(self.store, self.controller, self.clock, engine=self.engine),
            SampleStore(self.settings.home.samples),
            UploadStore(self.settings.home.uploads),
            now=self.clock,
        )
        self.controller.start()
