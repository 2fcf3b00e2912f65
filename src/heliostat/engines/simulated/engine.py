"""The simulated engine: nodes and jobs that exist only in memory.

The run time and the exit of a job are set by its environment variables: see behaviour.py.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from heliostat.engines.contract import Capabilities, LeftoverAttempt, ObservationCallback
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

ENDLESS_SECONDS = 1e9  # no end is scheduled for longer runs


class SimulatedEngine:
    """Implements `Engine`.

    The clock reports observations, never a call to the engine itself.

    A restart of Heliostat loses running jobs, unless `survives_restart`: then they continue where they would be
    by now.

    At a `speed` of 60, run times, time limits and grace periods of one minute last one second. The times of
    observations are those of the clock, because the server stores them beside its own.
    """

    name: str = "simulated"

    def __init__(
        self, nodes: Sequence[Node], clock: Clock, *, speed: float = 1.0, survives_restart: bool = False
    ) -> None:
        self.capabilities = Capabilities(survives_restart=survives_restart, runs_containers=True)
        self._clock, self._speed = clock, speed
        self._lock = threading.Lock()
        self._nodes = {node.name: SimulatedNode(node, speed) for node in nodes}
        self._running: dict[AttemptId, _Run] = {}
        self._ended: dict[AttemptId, AttemptEnded] = {}
        self._outbox = _Outbox()
        self._reports: list[ObservationCallback] = []
        self._on_nodes_changed: list[Callable[[], None]] = []
        self._closed = False

    def nodes(self) -> list[Node]:
        now = self._clock.now()
        with self._lock:
            return [node.current_node(now) for node in self._nodes.values()]

    def start(self, attempts: Sequence[Attempt]) -> None:
        now = self._clock.now()
        with self._lock:
            for attempt in attempts:
                if not self._closed and not self._is_known(attempt):
                    self._queue_report(self._begin_run(attempt, now))

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        now = self._clock.now()
        with self._lock:
            return [self._observe(attempt, now) for attempt in attempts]

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        """Simulated jobs treat every signal like TERM."""
        now = self._clock.now()
        with self._lock:
            run = self._running.get(attempt.id)
            if run is None:
                return
            planned_exit = run.behaviour.exit_when_stopped(run.seconds_until(now), grace_seconds, EndCause.STOPPED)
            if planned_exit.after_seconds <= run.planned_exit.after_seconds:
                self._schedule_end(run, planned_exit)

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        """Nothing is stored on disk. Ended attempts stay known, so that none starts again."""

    def forget_all_except(self, attempt_ids: Collection[AttemptId]) -> None:
        """Nothing to do: nothing outlives the process."""

    def recorded_attempts(self) -> set[AttemptId]:
        return set()

    def find_leftovers(self, attempt_ids: Iterable[AttemptId]) -> list[LeftoverAttempt]:
        return []

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
            nodes = [node.current_node(now) for node in self._nodes.values()]
            running = list(self._running.values())
        attempts = {run.attempt.id: self._sample_run(run, now) for run in running}
        samples_by_node: dict[str, list[tuple[UsageSample, float]]] = {node.name: [] for node in nodes}
        for run in running:
            places = run.attempt.task_placements
            for place in places:
                samples_by_node[place.node].append((attempts[run.attempt.id], 1 / len(places)))
        up = [node for node in nodes if node.state is not NodeState.DOWN]
        return SampleBatch(attempts, {node.name: sample_node(node, samples_by_node[node.name]) for node in up})

    def fail_node(self, name: str, reason: str = "The node does not answer.") -> None:
        """Set the node down; all attempts with a task on it are lost."""
        now = self._clock.now()
        with self._lock:
            node = self._find_node(name)
            node.set_state(NodeState.DOWN, reason)
            for run in [run for run in self._running.values() if run.uses_node(name)]:
                self._forget(run)
                self._queue_report(self._conclude(run.attempt, now, SimulatedExit(0, EndCause.LOST, None, reason)))
            self._queue_nodes_changed()

    def restore_node(self, name: str) -> None:
        with self._lock:
            self._find_node(name).set_state(NodeState.UP, None)
            self._queue_nodes_changed()

    def _sample_run(self, run: "_Run", now: datetime) -> UsageSample:
        devices = {uuid: device for node in self._nodes_of_run(run) for uuid, device in node.devices.items()}
        seconds = run.seconds_until(now)
        return sample_attempt(run.attempt, devices, seconds, run.behaviour.runs_out_of_memory)

    def _find_node(self, name: str) -> SimulatedNode:
        try:
            return self._nodes[name]
        except KeyError:
            raise NotFound(f"Simulated node {name} does not exist.", "List nodes: helio nodes.") from None

    def _is_known(self, attempt: Attempt) -> bool:
        return attempt.id in self._running or attempt.id in self._ended

    def _begin_run(self, attempt: Attempt, at: datetime) -> Observation:
        refusal = self._find_refusal(attempt)
        if refusal is not None:
            return self._conclude(attempt, at, refusal)
        behaviour = JobBehaviour.from_environment(attempt.job.spec.env)
        limit = None if attempt.job.overtime else attempt.job.time_limit_seconds
        planned_exit = behaviour.expected_exit(limit, attempt.job.spec.grace_seconds)
        run = _Run(attempt, behaviour, at, self._speed, planned_exit)
        self._running[attempt.id] = run
        for node in self._nodes_of_run(run):
            node.allocate(attempt, at)
        self._schedule_end(run, planned_exit)
        return AttemptStarted(attempt.id, at)

    def _find_refusal(self, attempt: Attempt) -> SimulatedExit | None:
        for name in _nodes_of(attempt):
            node = self._nodes.get(name)
            if node is None:
                return SimulatedExit(0, EndCause.REFUSED, None, f"Node {name} does not exist.")
            if node.node.state is NodeState.DOWN:
                return SimulatedExit(0, EndCause.NOT_STARTED, None, f"Node {name} is down.")
            if problem := node.find_allocation_problem(attempt):
                return SimulatedExit(0, EndCause.REFUSED, None, problem)
        problem = JobBehaviour.find_problem(attempt.job.spec.env)
        return None if problem is None else SimulatedExit(0, EndCause.REFUSED, None, problem)

    def _nodes_of_run(self, run: "_Run") -> list[SimulatedNode]:
        return [self._nodes[name] for name in _nodes_of(run.attempt)]

    def _schedule_end(self, run: "_Run", planned_exit: SimulatedExit) -> None:
        if run.end_call is not None:
            run.end_call.cancel()
        run.planned_exit = planned_exit
        if run.is_endless:
            run.end_call = None
            return
        run.end_call = self._clock.call_at(run.ends_at, partial(self._end, run, planned_exit))

    def _end(self, run: "_Run", planned_exit: SimulatedExit) -> None:
        with self._lock:
            # Meanwhile a stop may have changed the exit, or a node failure may have ended the run.
            if self._running.get(run.attempt.id) is not run or run.planned_exit is not planned_exit:
                return
            self._forget(run)
            self._queue_report(self._conclude(run.attempt, run.ends_at, planned_exit))

    def _forget(self, run: "_Run") -> None:
        if run.end_call is not None:
            run.end_call.cancel()
        del self._running[run.attempt.id]
        for node in self._nodes_of_run(run):
            node.release(run.attempt)

    def _conclude(self, attempt: Attempt, at: datetime, planned_exit: SimulatedExit) -> AttemptEnded:
        ended = AttemptEnded(attempt.id, at, planned_exit.cause, planned_exit.exit_code, planned_exit.detail)
        self._ended[attempt.id] = ended
        return ended

    def _observe(self, attempt: Attempt, now: datetime) -> Observation:
        run = self._running.get(attempt.id)
        if run is not None:
            return AttemptStarted(attempt.id, run.started_at)
        if attempt.id in self._ended:
            return self._ended[attempt.id]
        if attempt.job.state is not JobState.RUNNING:
            return self._conclude(attempt, now, SimulatedExit(0, EndCause.NOT_STARTED))
        if self.capabilities.survives_restart and self._find_refusal(attempt) is None:
            return self._resume(attempt, now)
        lost = SimulatedExit(
            0, EndCause.LOST, None, "Heliostat was restarted; simulated jobs do not survive a restart."
        )
        return self._conclude(attempt, now, lost)

    def _resume(self, attempt: Attempt, now: datetime) -> Observation:
        started = self._begin_run(attempt, attempt.job.started_at or now)
        run = self._running[attempt.id]
        if run.is_endless or run.ends_at > now:
            return started
        self._forget(run)
        return self._conclude(attempt, run.ends_at, run.planned_exit)

    def _queue_report(self, observation: Observation) -> None:
        self._outbox.observations.append(observation)
        self._send_soon()

    def _queue_nodes_changed(self) -> None:
        self._outbox.nodes_changed = True
        self._send_soon()

    def _send_soon(self) -> None:
        if not self._outbox.is_waiting:
            self._outbox.is_waiting = True
            self._clock.call_at(self._clock.now(), self._send)

    def _send(self) -> None:
        """Called only by the clock, so that reports keep their order; without the lock, so that callbacks may call
        the engine."""
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
    speed: float
    planned_exit: SimulatedExit
    end_call: ScheduledCall | None = None

    @property
    def is_endless(self) -> bool:
        return self._seconds_to_end >= ENDLESS_SECONDS

    @property
    def ends_at(self) -> datetime:
        return self.started_at + timedelta(seconds=self._seconds_to_end)

    def uses_node(self, node: str) -> bool:
        return node in _nodes_of(self.attempt)

    def seconds_until(self, now: datetime) -> float:
        """Simulated seconds that it has run."""
        return max(0.0, (now - self.started_at).total_seconds()) * self.speed

    @property
    def _seconds_to_end(self) -> float:
        return self.planned_exit.after_seconds / self.speed


@dataclass(slots=True)
class _Outbox:
    observations: list[Observation] = field(default_factory=list)
    nodes_changed: bool = False
    is_waiting: bool = False


def _nodes_of(attempt: Attempt) -> tuple[str, ...]:
    """Distinct node names, in the order of its tasks."""
    return tuple(dict.fromkeys(place.node for place in attempt.task_placements))
