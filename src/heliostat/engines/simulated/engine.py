"""An engine of made-up nodes on which jobs take time and nothing else.

How long a job runs and how it ends is read from its environment: see behaviour.py.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from heliostat.engines.contract import Capabilities, ObservationCallback
from heliostat.engines.simulated.behaviour import (
    EXIT_CODE_VARIABLE,
    EXIT_KILLED,
    EXIT_TERMINATED,
    IGNORE_TERM_VARIABLE,
    OOM_VARIABLE,
    SECONDS_VARIABLE,
    JobBehaviour,
    SimulatedExit,
)
from heliostat.engines.simulated.clock import Clock, ScheduledCall
from heliostat.engines.simulated.simulated_node import SimulatedNode
from heliostat.engines.simulated.usage_samples import sample_attempt, sample_node
from heliostat.errors import NotFound
from heliostat.models import (
    Attempt,
    AttemptEnded,
    AttemptId,
    AttemptStarted,
    EndCause,
    JobState,
    Node,
    NodeState,
    Observation,
    SampleBatch,
    UsageSample,
)

__all__ = [
    "EXIT_CODE_VARIABLE",
    "EXIT_KILLED",
    "EXIT_TERMINATED",
    "IGNORE_TERM_VARIABLE",
    "OOM_VARIABLE",
    "SECONDS_VARIABLE",
    "SimulatedEngine",
]

ENDLESS_SECONDS = 1e9  # what runs longer is not waited for


class SimulatedEngine:
    """Fulfils `Engine`.

    Reports are made by the clock, never from within a call to the engine.

    A restart of Heliostat loses what runs, unless `survives_restart`: then a job that was running is taken up
    where it would be by now.
    """

    name: str = "simulated"

    def __init__(self, nodes: Sequence[Node], clock: Clock, *, survives_restart: bool = False) -> None:
        self.capabilities = Capabilities(survives_restart=survives_restart, runs_containers=True)
        self._clock = clock
        self._lock = threading.Lock()
        self._machines = {node.name: SimulatedNode(node) for node in nodes}
        self._running: dict[AttemptId, _Run] = {}
        self._over: dict[AttemptId, AttemptEnded] = {}  # also the disowned
        self._outbox = _Outbox()
        self._reports: list[ObservationCallback] = []
        self._on_nodes_changed: list[Callable[[], None]] = []
        self._closed = False

    def nodes(self) -> list[Node]:
        now = self._clock.now()
        with self._lock:
            return [machine.current_node(now) for machine in self._machines.values()]

    def start(self, attempts: Sequence[Attempt]) -> None:
        now = self._clock.now()
        with self._lock:
            for attempt in attempts:
                if not self._closed and not self._is_known(attempt):
                    self._tell(self._begin(attempt, now))

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        now = self._clock.now()
        with self._lock:
            return [self._observe(attempt, now) for attempt in attempts]

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        """Simulated jobs heed every signal as they heed TERM."""
        now = self._clock.now()
        with self._lock:
            run = self._running.get(attempt.id)
            if run is None:
                return
            ending = run.behaviour.exit_when_stopped(run.seconds_until(now), grace_seconds, EndCause.STOPPED)
            if ending.after_seconds <= run.ending.after_seconds:
                self._await_end(run, ending)

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        """Nothing is kept on disk; what ended stays known, so that it never starts again."""

    def forget_all_except(self, attempt_ids: Collection[AttemptId]) -> None:
        """Nothing outlives the process."""

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for run in list(self._running.values()):
                self._forget(run)
            self._outbox = _Outbox()
            self._reports.clear()
            self._on_nodes_changed.clear()

    def set_observation_callback(self, report: ObservationCallback) -> None:
        with self._lock:
            self._reports.append(report)

    def set_nodes_changed_callback(self, changed: Callable[[], None]) -> None:
        with self._lock:
            self._on_nodes_changed.append(changed)

    def sample(self) -> SampleBatch:
        now = self._clock.now()
        with self._lock:
            nodes = [machine.current_node(now) for machine in self._machines.values()]
            running = list(self._running.values())
        attempts = {run.attempt.id: self._read(run, now) for run in running}
        there: dict[str, list[tuple[UsageSample, float]]] = {node.name: [] for node in nodes}
        for run in running:
            places = run.attempt.task_placements
            for place in places:
                there[place.node].append((attempts[run.attempt.id], 1 / len(places)))
        up = [node for node in nodes if node.state is not NodeState.DOWN]
        return SampleBatch(attempts, {node.name: sample_node(node, there[node.name]) for node in up})

    def fail_node(self, name: str, reason: str = "The node does not answer.") -> None:
        """The node goes down and takes with it what runs there, also in part."""
        now = self._clock.now()
        with self._lock:
            machine = self._machine(name)
            machine.set_state(NodeState.DOWN, reason)
            for run in [run for run in self._running.values() if run.touches(name)]:
                self._forget(run)
                self._tell(self._conclude(run.attempt, now, SimulatedExit(0, EndCause.LOST, None, reason)))
            self._tell_nodes_changed()

    def restore_node(self, name: str) -> None:
        with self._lock:
            self._machine(name).set_state(NodeState.UP, None)
            self._tell_nodes_changed()

    def _read(self, run: "_Run", now: datetime) -> UsageSample:
        devices = {uuid: device for machine in self._machines_of(run) for uuid, device in machine.devices.items()}
        seconds = run.seconds_until(now)
        return sample_attempt(run.attempt, devices, seconds, run.behaviour.runs_out_of_memory)

    def _machine(self, name: str) -> SimulatedNode:
        try:
            return self._machines[name]
        except KeyError:
            raise NotFound(f"There is no simulated node {name}.", "`helio nodes` lists them.") from None

    def _is_known(self, attempt: Attempt) -> bool:
        return attempt.id in self._running or attempt.id in self._over

    def _begin(self, attempt: Attempt, at: datetime) -> Observation:
        refusal = self._why_not(attempt)
        if refusal is not None:
            return self._conclude(attempt, at, refusal)
        behaviour = JobBehaviour.from_environment(attempt.job.spec.env)
        limit = None if attempt.job.overtime else attempt.job.time_limit_seconds
        ending = behaviour.expected_exit(limit, attempt.job.spec.grace_seconds)
        run = _Run(attempt, behaviour, at, ending)
        self._running[attempt.id] = run
        for machine in self._machines_of(run):
            machine.allocate(attempt, at)
        self._await_end(run, ending)
        return AttemptStarted(attempt.id, at)

    def _why_not(self, attempt: Attempt) -> SimulatedExit | None:
        for name in _nodes_of(attempt):
            machine = self._machines.get(name)
            if machine is None:
                return SimulatedExit(0, EndCause.REFUSED, None, f"There is no node {name}.")
            if machine.node.state is NodeState.DOWN:
                return SimulatedExit(0, EndCause.NOT_STARTED, None, f"Node {name} is down.")
            if problem := machine.find_allocation_problem(attempt):
                return SimulatedExit(0, EndCause.REFUSED, None, problem)
        problem = JobBehaviour.find_problem(attempt.job.spec.env)
        return None if problem is None else SimulatedExit(0, EndCause.REFUSED, None, problem)

    def _machines_of(self, run: "_Run") -> list[SimulatedNode]:
        return [self._machines[name] for name in _nodes_of(run.attempt)]

    def _await_end(self, run: "_Run", ending: SimulatedExit) -> None:
        if run.alarm is not None:
            run.alarm.cancel()
        run.ending = ending
        if ending.after_seconds >= ENDLESS_SECONDS:
            run.alarm = None
            return
        run.alarm = self._clock.call_at(run.ends_at, partial(self._end, run, ending))

    def _end(self, run: "_Run", ending: SimulatedExit) -> None:
        with self._lock:
            # While this call was on its way, a stop may have changed the ending or a node failure made it.
            if self._running.get(run.attempt.id) is not run or run.ending is not ending:
                return
            self._forget(run)
            self._tell(self._conclude(run.attempt, run.ends_at, ending))

    def _forget(self, run: "_Run") -> None:
        if run.alarm is not None:
            run.alarm.cancel()
        del self._running[run.attempt.id]
        for machine in self._machines_of(run):
            machine.release(run.attempt)

    def _conclude(self, attempt: Attempt, at: datetime, ending: SimulatedExit) -> AttemptEnded:
        ended = AttemptEnded(attempt.id, at, ending.cause, ending.exit_code, ending.detail)
        self._over[attempt.id] = ended
        return ended

    def _observe(self, attempt: Attempt, now: datetime) -> Observation:
        run = self._running.get(attempt.id)
        if run is not None:
            return AttemptStarted(attempt.id, run.started_at)
        if attempt.id in self._over:
            return self._over[attempt.id]
        if attempt.job.state is not JobState.RUNNING:
            return self._conclude(attempt, now, SimulatedExit(0, EndCause.NOT_STARTED))
        if self.capabilities.survives_restart and self._why_not(attempt) is None:
            return self._take_up(attempt, now)
        lost = SimulatedExit(
            0, EndCause.LOST, None, "Heliostat was restarted; simulated jobs do not go on without it."
        )
        return self._conclude(attempt, now, lost)

    def _take_up(self, attempt: Attempt, now: datetime) -> Observation:
        started = self._begin(attempt, attempt.job.started_at or now)
        run = self._running[attempt.id]
        if run.ending.after_seconds >= ENDLESS_SECONDS or run.ends_at > now:
            return started
        self._forget(run)
        return self._conclude(attempt, run.ends_at, run.ending)

    def _tell(self, observation: Observation) -> None:
        self._outbox.observations.append(observation)
        self._send_soon()

    def _tell_nodes_changed(self) -> None:
        self._outbox.nodes_changed = True
        self._send_soon()

    def _send_soon(self) -> None:
        if not self._outbox.is_waiting:
            self._outbox.is_waiting = True
            self._clock.call_at(self._clock.now(), self._send)

    def _send(self) -> None:
        """By the clock alone, so reports keep their order; without the lock, so a report may call us."""
        with self._lock:
            outbox, self._outbox = self._outbox, _Outbox()
            reports, changed = list(self._reports), list(self._on_nodes_changed)
        if outbox.nodes_changed:
            for call in changed:
                call()
        if outbox.observations:
            for report in reports:
                report(outbox.observations)


@dataclass(slots=True)
class _Run:
    attempt: Attempt
    behaviour: JobBehaviour
    started_at: datetime
    ending: SimulatedExit
    alarm: ScheduledCall | None = None

    @property
    def ends_at(self) -> datetime:
        return self.started_at + timedelta(seconds=self.ending.after_seconds)

    def touches(self, node: str) -> bool:
        return node in _nodes_of(self.attempt)

    def seconds_until(self, now: datetime) -> float:
        return max(0.0, (now - self.started_at).total_seconds())


@dataclass(slots=True)
class _Outbox:
    observations: list[Observation] = field(default_factory=list)
    nodes_changed: bool = False
    is_waiting: bool = False


def _nodes_of(attempt: Attempt) -> tuple[str, ...]:
    """Each once, in the order of its tasks."""
    return tuple(dict.fromkeys(place.node for place in attempt.task_placements))
