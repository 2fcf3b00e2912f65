"""Several policies on the same jobs, in as many processes as there is room for."""

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from heliostat.errors import HeliostatError
from heliostat.models import Department, Job, Node, Project
from heliostat.scheduling.plan import plan
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.scheduling.snapshot import Plan
from heliostat.simulation.cluster import ReplayCluster
from heliostat.simulation.metrics import FloatArray, ReplayMetrics, compute_metrics, to_attempt_table
from heliostat.simulation.policies import NamedPolicy
from heliostat.simulation.replay import replay
from heliostat.simulation.workload import Workload

ReplayProgressCallback = Callable[[str, int], None]
"""Is given a policy's name and how many of its jobs are over."""


@dataclass(frozen=True, slots=True)
class ReplayScenario:
    cluster: ReplayCluster
    workload: Workload
    checkpoint_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PolicyResult:
    policy: str
    attempts: FloatArray  # a row each, as `figures.as_table` makes them
    metrics: ReplayMetrics
    replay_seconds: float  # that the replay took


def compare_policies(
    scenario: ReplayScenario, policies: Sequence[NamedPolicy], parallel: int, told: ReplayProgressCallback
) -> list[PolicyResult]:
    """One outcome for each policy, in their order; the same whatever `parallel` says."""
    if parallel <= 1 or len(policies) == 1:
        return [replay_policy(scenario, named, told) for named in policies]
    found = _Processes(scenario, parallel, told).run(policies)
    return [found[named.name] for named in policies]


def replay_policy(scenario: ReplayScenario, named: NamedPolicy, told: ReplayProgressCallback) -> PolicyResult:
    began = time.perf_counter()
    spans = replay(
        scenario.workload,
        QueuePlanner(named, scenario.cluster.nodes, scenario.workload.departments),
        checkpoint_seconds=scenario.checkpoint_seconds,
        told=lambda over: told(named.name, over),
    )
    seconds = time.perf_counter() - began
    attempts = to_attempt_table(spans)
    return PolicyResult(
        named.name, attempts, compute_metrics(scenario.workload, scenario.cluster, attempts), seconds
    )


class _Processes:
    """A process for each policy, which sends how many jobs are over, again and again, and at last its outcome."""

    def __init__(self, scenario: ReplayScenario, parallel: int, told: ReplayProgressCallback) -> None:
        self._scenario, self._parallel, self._told = scenario, parallel, told
        self._context = multiprocessing.get_context("spawn")  # a fork would copy half a progress bar
        self._running: dict[Connection, tuple[str, BaseProcess]] = {}
        self._found: dict[str, PolicyResult] = {}

    def run(self, policies: Sequence[NamedPolicy]) -> dict[str, PolicyResult]:
        waiting = deque(policies)
        try:
            while waiting or self._running:
                while waiting and len(self._running) < self._parallel:
                    self._start(waiting.popleft())
                for connection in wait(list(self._running)):
                    assert isinstance(connection, Connection)  # noqa: S101 - it waits for nothing else
                    self._hear(connection)
        finally:
            for _, process in self._running.values():
                process.terminate()
                process.join()
        return self._found

    def _start(self, named: NamedPolicy) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(theirs, self._scenario, named), daemon=True)
        process.start()
        theirs.close()
        self._running[ours] = (named.name, process)

    def _hear(self, connection: Connection) -> None:
        name, process = self._running[connection]
        try:
            said = connection.recv()
        except EOFError:
            process.join()
            raise HeliostatError(
                f"The replay of {name} ended early (status {process.exitcode}).",
                "Perhaps memory ran out: try --parallel 1.",
            ) from None
        if isinstance(said, int):
            self._told(name, said)
            return
        self._found[name] = said
        del self._running[connection]
        connection.close()
        process.join()


def _work(connection: Connection, scenario: ReplayScenario, named: NamedPolicy) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the one who started us, and that one ends us
    connection.send(replay_policy(scenario, named, lambda _, over: connection.send(over)))
    connection.close()


class QueuePlanner:
    """Told of every change, as the controller tells its board; decides by the same function."""

    def __init__(self, named: NamedPolicy, nodes: tuple[Node, ...], departments: Mapping[str, str]) -> None:
        """`departments` are those of each project."""
        self._policy = named.policy
        self._board = QueueState(named.policy)
        self._board.set_nodes(nodes)
        self._board.set_accounts(_accounts(named, departments))

    def update_job(self, job: Job, now: datetime) -> None:
        self._board.update_job(job, now)

    def make_decision(self, now: datetime) -> Plan:
        return plan(self._board.live_snapshot(now), self._policy, now)


def _accounts(named: NamedPolicy, departments: Mapping[str, str]) -> ShareAccounts:
    projects = {name: Project(name, of, share=named.projects.get(name, 1)) for name, of in departments.items()}
    names = sorted(set(departments.values()))
    return ShareAccounts({name: Department(name, named.departments.get(name, 1)) for name in names}, projects)
