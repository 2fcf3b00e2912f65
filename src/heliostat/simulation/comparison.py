"""Comparison of scheduling policies: replays of the same jobs in parallel processes."""

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from heliostat.errors import HeliostatError
from heliostat.models import Department, Job, Node, Project, Quota
from heliostat.scheduling.plan import plan
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.scheduling.snapshot import Plan
from heliostat.simulation.cluster import ReplayCluster, charge_only_limited_resources
from heliostat.simulation.forecast_coverage import ForecastCoverage, ForecastRecorder, sample_jobs
from heliostat.simulation.metrics import FloatArray, ReplayMetrics, compute_metrics, to_attempt_table
from heliostat.simulation.policies import NamedPolicy
from heliostat.simulation.policy_rules import check_reservations
from heliostat.simulation.replay import replay
from heliostat.simulation.workload import Workload

ReplayProgressCallback = Callable[[str, int], None]
"""Called with the name of a policy and the number of jobs that have ended in its replay."""


@dataclass(frozen=True, slots=True)
class ReplayScenario:
    cluster: ReplayCluster
    workload: Workload
    checkpoint_seconds: float | None = None
    forecast_sample: int = 0  # about so many jobs are forecast when they are submitted


@dataclass(frozen=True, slots=True)
class PolicyResult:
    policy: str
    attempts: FloatArray  # from `to_attempt_table`
    attempt_nodes: tuple[tuple[str, ...], ...]  # of each attempt
    metrics: ReplayMetrics
    replay_seconds: float  # real time that the replay took
    forecasts: ForecastCoverage | None = None  # None: nothing was forecast


@dataclass(frozen=True, slots=True)
class ComparisonColumn:
    """One policy on one cluster, with a title that names what differs from the other columns."""

    title: str
    scenario: ReplayScenario
    result: PolicyResult


def compare_clusters(
    scenarios: Sequence[ReplayScenario],
    policies: Sequence[NamedPolicy],
    parallel: int,
    report_progress: ReplayProgressCallback,
) -> list[ComparisonColumn]:
    """Every policy on every cluster. Raises Invalid if a cluster cannot have the reservations of a policy."""
    for named in policies:
        for scenario in scenarios:
            check_reservations(named.name, named.reservations, scenario.cluster)

    def title(scenario: ReplayScenario, result: PolicyResult) -> str:
        if len(scenarios) == 1:
            return result.policy
        nodes = scenario.cluster.nodes_text
        return nodes if len(policies) == 1 else f"{result.policy} on {nodes}"

    return [
        ComparisonColumn(title(scenario, result), scenario, result)
        for scenario in scenarios
        for result in compare_policies(scenario, policies, parallel, report_progress)
    ]


def compare_policies(
    scenario: ReplayScenario,
    policies: Sequence[NamedPolicy],
    parallel: int,
    report_progress: ReplayProgressCallback,
) -> list[PolicyResult]:
    """One result for each policy, in their order. Results do not depend on `parallel`."""
    if parallel <= 1 or len(policies) == 1:
        return [replay_policy(scenario, named, report_progress) for named in policies]
    results = _Processes(scenario, parallel, report_progress).run(policies)
    return [results[named.name] for named in policies]


def replay_policy(
    scenario: ReplayScenario, named: NamedPolicy, report_progress: ReplayProgressCallback
) -> PolicyResult:
    started, workload = time.perf_counter(), scenario.workload
    planner = ForecastRecorder(
        QueuePlanner(named, scenario.cluster.nodes, workload.departments),
        sample_jobs(len(workload.jobs), scenario.forecast_sample),
    )
    spans = replay(
        workload,
        planner,
        checkpoint_seconds=scenario.checkpoint_seconds,
        report_progress=lambda ended_count: report_progress(named.name, ended_count),
    )
    seconds = time.perf_counter() - started
    attempts = to_attempt_table(spans)
    metrics = compute_metrics(workload, scenario.cluster, attempts)
    coverage = planner.coverage() if scenario.forecast_sample else None
    return PolicyResult(named.name, attempts, tuple(span.nodes for span in spans), metrics, seconds, coverage)


class _Processes:
    """One process per policy, which sends its progress repeatedly and finally its result."""

    def __init__(self, scenario: ReplayScenario, parallel: int, report_progress: ReplayProgressCallback) -> None:
        self._scenario, self._parallel, self._report_progress = scenario, parallel, report_progress
        self._context = multiprocessing.get_context("spawn")  # a fork would copy a partly printed progress bar
        self._running: dict[Connection, tuple[str, BaseProcess]] = {}
        self._results: dict[str, PolicyResult] = {}

    def run(self, policies: Sequence[NamedPolicy]) -> dict[str, PolicyResult]:
        waiting = deque(policies)
        try:
            while waiting or self._running:
                while waiting and len(self._running) < self._parallel:
                    self._start(waiting.popleft())
                for connection in wait(list(self._running)):
                    assert isinstance(connection, Connection)  # noqa: S101 - it waits for nothing else
                    self._receive(connection)
        finally:
            for _, process in self._running.values():
                process.terminate()
                process.join()
        return self._results

    def _start(self, named: NamedPolicy) -> None:
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(sender, self._scenario, named), daemon=True)
        process.start()
        sender.close()
        self._running[receiver] = (named.name, process)

    def _receive(self, connection: Connection) -> None:
        name, process = self._running[connection]
        try:
            message = connection.recv()
        except EOFError:
            process.join()
            raise HeliostatError(
                f"The replay of {name} ended early (exit code {process.exitcode}).",
                "It may have run out of memory: try --parallel 1.",
            ) from None
        if isinstance(message, int):
            self._report_progress(name, message)
            return
        self._results[name] = message
        del self._running[connection]
        connection.close()
        process.join()


def _work(connection: Connection, scenario: ReplayScenario, named: NamedPolicy) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent process stops this one
    connection.send(replay_policy(scenario, named, lambda _, ended_count: connection.send(ended_count)))
    connection.close()


class QueuePlanner:
    """The live planner with a queue state of its own."""

    def __init__(self, named: NamedPolicy, nodes: tuple[Node, ...], departments: Mapping[str, str]) -> None:
        """`departments`: the department of each project."""
        charges = charge_only_limited_resources(named.policy.charges, nodes)
        self._policy = replace(named.policy, charges=charges)
        self._queue_state = QueueState(self._policy)
        self._queue_state.set_nodes(nodes)
        self._queue_state.set_accounts(_accounts(named, departments))
        self._queue_state.set_reservations(named.reservations)

    @property
    def queue_state(self) -> QueueState:
        return self._queue_state

    def update_job(self, job: Job, now: datetime) -> None:
        self._queue_state.update_job(job, now)

    def make_decision(self, now: datetime) -> Plan:
        self._forget_ended_reservations(now)
        decision = plan(self._queue_state.live_snapshot(now), self._policy, now)
        self._queue_state.update_bookings(decision, now)
        return decision

    def _forget_ended_reservations(self, now: datetime) -> None:
        """As the controller does: plans without reservations take less time."""
        known = self._queue_state.reservations
        if any(reservation.final_end_at <= now for reservation in known):
            remaining = tuple(reservation for reservation in known if reservation.final_end_at > now)
            self._queue_state.set_reservations(remaining)


def _accounts(named: NamedPolicy, department_of: Mapping[str, str]) -> ShareAccounts:
    def quota(level: str, name: str) -> Quota:
        return named.quotas.get((level, name), Quota())

    departments = {
        name: Department(name, named.departments.get(name, 1), quota("department", name))
        for name in sorted(set(department_of.values()))
    }
    projects = {
        name: Project(name, department, share=named.projects.get(name, 1), quota=quota("project", name))
        for name, department in department_of.items()
    }
    users = {name: quota for (level, name), quota in named.quotas.items() if level == "user"}
    return ShareAccounts(departments, projects, users)
