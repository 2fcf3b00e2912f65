"""Controller: reconciles the engine with the database in rounds of observe, plan, record and execute.

One thread owns the queue state. It sleeps until something happens: a commit, an observation of the engine, a
change of nodes, the time of a retry. Everything that has happened until then is handled in one round with one
commit.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from heliostat.config import Settings
from heliostat.controller.background_loop import LoopRecord, log_failure
from heliostat.controller.environment_installation import install_build_result
from heliostat.controller.inbox import Inbox, RoundInput
from heliostat.controller.job_counts import JobCounts
from heliostat.controller.job_results import collect_results
from heliostat.controller.leftover_attempts import (
    adopt_newer_attempts,
    find_newer_attempts,
    hold_jobs_started_since,
)
from heliostat.controller.node_inventory import NodeInventory
from heliostat.controller.round_recording import ReconcileRound, record_round
from heliostat.controller.shares_and_quotas import SchedulingRules
from heliostat.controller.start_retries import StartRetries
from heliostat.controller.synced_queue import QueueFigures, SyncedQueue
from heliostat.controller.transition_rules import transitions_for_observation
from heliostat.controller.usage_and_durations import load_run_durations, load_submissions, load_usage_history
from heliostat.engines.contract import Engine, HasOwnQueue, ReportsCheckpoints
from heliostat.errors import HeliostatError
from heliostat.metrics import FAST_BUCKETS, Histogram
from heliostat.models import (
    ACTIVE_STATES,
    Attempt,
    AttemptEnded,
    AttemptId,
    AttemptStarted,
    EndCause,
    Job,
    JobId,
    JobState,
    Observation,
    WaitReason,
    job_id_of_attempt,
)
from heliostat.scheduling.dependencies import is_own_explanation_better
from heliostat.scheduling.explain.explainer import WaitExplainer, WaitExplanation, explain_engine_wait
from heliostat.scheduling.plan import plan
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.snapshot import Plan
from heliostat.server_log import get_logger
from heliostat.store import job_writes
from heliostat.store import jobs as stored
from heliostat.store.database import Store, StoreChanges
from heliostat.store.projects_and_quotas import project_data_classes

log = get_logger()

_MAX_SLEEP_SECONDS = 3600.0
_CHECKPOINT_INTERVAL_SECONDS = 5.0
_CATCH_UP_SECONDS = 0.2
_PAUSED = WaitReason("Heliostat is paused: no job starts until an admin runs helio resume", "paused")
_LOST_DETAIL = "its end is unknown: Heliostat was restored from a backup"


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a paused server takes up the jobs of an earlier one."""

    after_restore: bool = False  # the database is one of a backup
    left_running: frozenset[AttemptId] = frozenset()  # unknown attempts that continue


_NO_LEFT = Resumption()


@dataclass(frozen=True, slots=True)
class ControllerComponents:
    """Dependencies of the controller."""

    store: Store
    engine: Engine
    node_inventory: NodeInventory
    rules: SchedulingRules
    settings: Settings


class Controller:
    def __init__(
        self,
        components: ControllerComponents,
        now: Callable[[], datetime],
        policy: SchedulingPolicy | None = None,
        *,
        retry_seconds: float = 1.0,
    ) -> None:
        """`retry_seconds`: after a failed round, and after the first failed start of a job."""
        self._store, self._engine, self._node_inventory, self._rules = (
            components.store,
            components.engine,
            components.node_inventory,
            components.rules,
        )
        self._settings = components.settings
        self._now = now
        self._policy = policy or SchedulingPolicy()
        self._queue = SyncedQueue(QueueState(self._policy))
        self._plan = Plan()
        self._explainer = WaitExplainer(self._queue.state.snapshot(now()), self._policy, self._plan, now())
        self._inbox = Inbox()
        self._retries, self._retry_seconds = StartRetries(retry_seconds), retry_seconds
        self._stop_requests: dict[AttemptId, str] = {}  # sent to the engine, with their kind
        self._next_checkpoint_read = 0.0
        self.loop_record, self.plan_seconds = LoopRecord("controller"), Histogram(FAST_BUCKETS)
        self._is_paused = False
        self._resumption: tuple[Resumption, Future[None]] | None = None
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)

    def start(self, resumption: Resumption | None = _NO_LEFT) -> None:
        """Take up the jobs of an earlier server, then run rounds. None: paused; only follow the database, and
        touch no attempt, until `resume`."""
        self._store.on_commit(self._on_commit)
        self._node_inventory.on_change(self._inbox.request_round)
        self._rules.on_change(self._inbox.request_round)
        self._engine.set_observation_callback(self._inbox.put_observations)
        self._is_paused = resumption is None
        if resumption is None:
            self._load()
        else:
            self._take_up(resumption)
        self._thread.start()

    def resume(self, resumption: Resumption) -> None:
        """Returns when the jobs of the earlier server are taken up. Raises what prevents that; then it is still
        paused."""
        done: Future[None] = Future()
        self._resumption = (resumption, done)
        self._inbox.request_round()
        done.result()

    def close(self) -> None:
        self._inbox.close()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def policy(self) -> SchedulingPolicy:
        return self._policy

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def job_counts(self) -> JobCounts:
        return self._queue.counts

    def queue_figures(self) -> QueueFigures:
        """As of the newest round."""
        return self._queue.figures(self._now())

    def is_blocked_while_free(self, seconds: float) -> bool:
        """Whether for so long no job has started, although the newest plan finds a job that has waited longer,
        whose resources are free and that no rule holds back. Such a job starts at once: something is broken."""
        if self._is_paused or self.job_counts.seconds_since_start < seconds:
            return False
        return self._explainer.has_unexplained_wait(self._now() - timedelta(seconds=seconds))

    def wait_reason(self, job: Job) -> str | None:
        """Why a job waits, as of the newest plan."""
        if job.state is not JobState.PENDING:
            waiting = self.engine_wait_reason(job)
            return waiting.reason if waiting else job.reason
        if self._is_paused:
            return _PAUSED.reason
        waiting, reason = self.engine_wait_reason(job), self._queue.explain_ineligible(job, self._now())
        if reason and is_own_explanation_better(waiting):
            return reason
        if job.dispatched:
            return waiting.reason if waiting else "was just dispatched"
        return self._explainer.short_reason(job.id) or job.reason or "was just submitted"

    def explain_wait(self, job_id: JobId) -> WaitExplanation | None:
        """Explanation for a waiting job, as of the newest plan; None: it does not wait in the queue."""
        job = self._queue.get(job_id)
        if self._is_paused:
            return explain_engine_wait(job_id, _PAUSED) if job and job.state is JobState.PENDING else None
        waiting = self.engine_wait_reason(job) if job and job.dispatched else None
        if job and not job.is_eligible(self._now()):
            return None
        return explain_engine_wait(job_id, waiting) if waiting else self._explainer.explain(job_id)

    def engine_wait_reason(self, job: Job) -> WaitReason | None:
        """Reason reported by an engine with its own queue for a job that waits or is suspended there."""
        if not (job.dispatched or job.state is JobState.RUNNING) or not isinstance(self._engine, HasOwnQueue):
            return None
        return self._engine.wait_reason(job.attempt_id)

    def forecast_engine_start(self, job: Job) -> datetime | None:
        """When the engine's own queue would start a job that is not submitted; None: it has no queue. Raises
        Conflict or EngineUnavailable."""
        if not isinstance(self._engine, HasOwnQueue):
            return None
        with self._store.read() as conn:
            data_class = project_data_classes(conn).get(job.project, 0)
        return self._engine.forecast_start(Attempt(job.attempt_id, job, "", data_class=data_class))

    def copy_queue_state(self) -> QueueState:
        """A copy for forecasts and explanations."""
        return self._queue.copy_state()

    def latest_queue_state(self) -> QueueState:
        """A copy that includes all commits until now. May wait for a round."""
        self._inbox.wait_until_handled(_CATCH_UP_SECONDS)
        return self.copy_queue_state()

    def active_jobs_and_pending_count(self) -> tuple[list[Job], int]:
        """Starting and running jobs, and the number of waiting ones, as of the newest round."""
        return self._queue.active_jobs_and_pending_count()

    def count_unfinished_jobs(self, user: str) -> int:
        """Number of unfinished jobs of a user, as of the newest round."""
        return self._queue.count_unfinished_jobs(user)

    def _on_commit(self, changes: StoreChanges) -> None:
        if changes.added_jobs or changes.changed_jobs:
            self._inbox.put_changes(changes)

    def _run(self) -> None:
        while not self._inbox.is_closed:
            round_input = self._inbox.take(self._seconds_to_next_retry)
            try:
                self._handle(round_input)
            except Exception as error:  # noqa: BLE001 - this thread must not die
                self.loop_record.failed()
                self._recover(round_input, error)
            else:
                self.loop_record.succeeded()

    def _handle(self, round_input: RoundInput) -> None:
        if self._is_paused:
            self._follow_database(round_input.changes)
            return
        self._apply(round_input.changes, self._now())
        self._send_stop_requests(round_input.changes)
        round_input.observations = [self._collect_results(seen) for seen in round_input.observations]
        this_round = self._decide(round_input)
        if not this_round.has_changes:
            return
        self._store.write(lambda tx: record_round(tx, this_round, self._transitions_for))
        self._execute(this_round)
        self._apply_own_changes(this_round)

    def _follow_database(self, changes: Sequence[StoreChanges]) -> None:
        """While paused; resumes on request."""
        for change in changes:
            self._queue.apply_changes(change, self._now())
        if self._resumption is None:
            return
        resumption, done = self._resumption
        self._resumption = None
        try:
            self._take_up(resumption)
        except Exception as error:  # noqa: BLE001 - raised by `resume`
            done.set_exception(error)
        else:
            self._is_paused = False
            done.set_result(None)

    def _take_up(self, resumption: Resumption) -> None:
        """The attempts of an earlier server. Those that no job needs are stopped."""
        newer, now = find_newer_attempts(self._store, self._engine), self._now()
        if newer.of_known_jobs:
            self._store.write(lambda tx: adopt_newer_attempts(tx, newer.of_known_jobs, self._engine, now))
        if resumption.after_restore:
            adopted = {job_id_of_attempt(leftover.id) for leftover in newer.of_known_jobs}
            jobs = self._settings.home.jobs
            self._store.write(lambda tx: hold_jobs_started_since(tx, jobs, adopted, now))
        attempts = self._reload(after_restore=resumption.after_restore)
        try:
            self._engine.forget_all_except({attempt.id for attempt in attempts} | resumption.left_running)
        except Exception as error:  # noqa: BLE001 - what an earlier server left must not stop the start
            log_failure("cleanup_after_earlier_server_failed", error)

    def _collect_results(self, seen: Observation) -> Observation:
        """Store the results of an ended job before the jobs that depend on it start."""
        if not isinstance(seen, AttemptEnded):
            return seen
        job = self._queue.get(job_id_of_attempt(seen.attempt_id))
        is_newest = job is not None and job.attempt_id == seen.attempt_id
        if job is None or not is_newest:
            return seen
        ended = collect_results(self._store, self._engine, self._settings.home, job, seen)
        return install_build_result(self._settings, self._engine, job, ended)

    def _apply(self, changes: Sequence[StoreChanges], now: datetime) -> None:
        """Cancelled and held jobs are also removed from the engine's own queue."""
        for change in changes:
            for job_id, values in change.changed_jobs:
                job = self._queue.get(job_id)
                if job and job.dispatched and values.get("state") in (JobState.CANCELLED, JobState.HELD):
                    self._engine.stop(Attempt(job.attempt_id, job, ""), 0.0)
            self._queue.apply_changes(change, now)

    def _decide(self, round_input: RoundInput) -> ReconcileRound:
        now, observations = self._now(), round_input.observations
        if round_input.has_only_starts and self._seconds_to_next_retry() != 0.0:
            return ReconcileRound(observations, Plan(), now)
        ended = [seen.attempt_id for seen in observations if isinstance(seen, AttemptEnded)]
        self._queue.update_cluster(
            self._node_inventory.nodes(), self._rules.share_accounts(), self._rules.reservations(now), now
        )
        capabilities = self._engine.capabilities
        if capabilities.has_own_queue:
            ready = self._queue.jobs_to_dispatch(capabilities, self._retries.delayed_jobs(), now, ended)
            self._plan = Plan(wake_at=self._queue.state.next_begin_at())
            return ReconcileRound(observations, self._plan, now, ready)
        self._read_checkpoints(now)
        snapshot = self._queue.snapshot(now, ended, self._retries.delayed_jobs())
        began = time.perf_counter()
        self._plan = plan(snapshot, self._policy, now)
        self.plan_seconds.observe(time.perf_counter() - began)
        self._explainer = WaitExplainer(snapshot, self._policy, self._plan, now)
        return ReconcileRound(observations, self._plan, now)

    def _read_checkpoints(self, now: datetime) -> None:
        """Preemption prefers jobs with a recent checkpoint: they lose less work."""
        if not isinstance(self._engine, ReportsCheckpoints) or time.monotonic() < self._next_checkpoint_read:
            return
        self._next_checkpoint_read = time.monotonic() + _CHECKPOINT_INTERVAL_SECONDS
        jobs = [job for job in self._queue.active_jobs() if job.preemptible and job.started_at]
        attempts = [Attempt(job.attempt_id, job, job.node or "", job.devices) for job in jobs]
        for attempt_id, saved_at in (self._engine.checkpoint_times(attempts) if attempts else {}).items():
            self._queue.record_checkpoint(attempt_id, saved_at, now)

    def _transitions_for(self, seen: AttemptStarted | AttemptEnded) -> list[job_writes.JobTransition]:
        job = self._job_of(seen)
        if job is None:
            return []
        return transitions_for_observation(job, seen, may_retry=self._retries.may_retry(job.id))

    def _job_of(self, seen: AttemptStarted | AttemptEnded) -> Job | None:
        """None for a late observation: of an attempt that is not the newest, or whose end is recorded."""
        job = self._queue.get(job_id_of_attempt(seen.attempt_id))
        if job is None or job.attempt_id != seen.attempt_id or not (job.state in ACTIVE_STATES or job.dispatched):
            return None
        return job

    def _execute(self, this_round: ReconcileRound) -> None:
        self._retries.record_observations(this_round.observations)
        self._engine.start(this_round.started)
        if this_round.ended:
            for attempt_id in this_round.ended:
                self._stop_requests.pop(attempt_id, None)
            self._engine.forget(this_round.ended)

    def _apply_own_changes(self, this_round: ReconcileRound) -> None:
        """The changes of this round need no new plan, unless a job waits again because of them."""
        own_jobs = {job_id_of_attempt(seen.attempt_id) for seen in this_round.observations}
        own_jobs |= {attempt.job.id for attempt in this_round.started}
        own_jobs |= {*this_round.plan.new_bookings, *this_round.plan.withdrawn_bookings}
        changes = self._inbox.take_changes(lambda taken: any(_needs_round(change, own_jobs) for change in taken))
        self._apply(changes, this_round.now)
        self._send_stop_requests(changes)

    def _send_stop_requests(self, changes: Sequence[StoreChanges]) -> None:
        changed = [job for change in changes for job in change.changed_jobs]
        for job_id in {job_id for job_id, values in changed if values.get("stop_requested")}:
            if job := self._queue.get(job_id):
                self._stop(job)

    def _stop(self, job: Job) -> None:
        """Once for each kind of request: a job may be cancelled while it is being preempted."""
        if job.stop_requested is None or job.node is None:
            return
        if self._stop_requests.get(job.attempt_id) == job.stop_requested:
            return
        self._stop_requests[job.attempt_id] = job.stop_requested
        for attempt in self._attempts_of([job]):
            spec = attempt.job.spec
            signal = spec.preempt_signal if job.stop_requested == "preempt" else "TERM"
            self._engine.stop(attempt, 0.0 if job.stop_requested == "kill" else spec.grace_seconds, signal)

    def _attempts_of(self, jobs: Sequence[Job]) -> list[Attempt]:
        if not jobs:
            return []
        with self._store.read() as conn:
            full = stored.get_jobs(conn, [job.id for job in jobs])
        return [Attempt(job.attempt_id, job, job.node or "", job.devices, job.places) for job in full.values()]

    def _recover(self, round_input: RoundInput, error: Exception) -> None:
        """After a failed write or a bug: wait, then start again from the database."""
        if isinstance(error, HeliostatError):
            log.error("round_failed", error=str(error))
        else:
            log.exception("round_failed")
        time.sleep(self._retry_seconds)
        self._inbox.put_back_observations(round_input.observations)
        try:
            self._reload()
        except Exception:
            log.exception("reload_failed")

    def _reload(self, *, after_restore: bool = False) -> list[Attempt]:
        """Load the queue from the database, and observe the attempts that should be active.

        After a restore, an attempt without a trace may have run elsewhere, or have ended: it is lost, and not
        started again.
        """
        self._load()
        attempts = self._attempts_of([*self._queue.active_jobs(), *self._queue.dispatched_jobs()])
        running = {attempt.id for attempt in attempts if attempt.job.state is JobState.RUNNING}
        observations = self._engine.observe(attempts)
        if after_restore:
            observations = [_as_lost(seen) for seen in observations]
        self._inbox.put_observations(
            [
                seen
                for seen in observations
                if not (isinstance(seen, AttemptStarted) and seen.attempt_id in running)
            ]
        )
        self._stop_requests.clear()  # the round may have failed before they were sent to the engine
        for job in self._queue.active_jobs():
            self._stop(job)
        return attempts

    def _load(self) -> None:
        self._inbox.discard_changes()
        with self._store.read() as conn:
            unfinished = stored.list_unfinished_jobs(conn)
        state = QueueState(self._policy)
        state.set_nodes(self._node_inventory.nodes())
        state.set_accounts(self._rules.share_accounts())
        state.add_past_usage(load_usage_history(self._store, self._policy, self._now()), self._now())
        state.add_history(load_run_durations(self._store, self._now()), load_submissions(self._store, self._now()))
        self._queue = SyncedQueue(state, unfinished, self._now(), self._queue.counts)

    def _seconds_to_next_retry(self) -> float | None:
        waits = self._retries.seconds_until_retries()
        if self._plan.wake_at is not None:
            waits.append((self._plan.wake_at - self._now()).total_seconds())
        return min(max(0.0, min(waits)), _MAX_SLEEP_SECONDS) if waits else None


def _as_lost(seen: Observation) -> Observation:
    if isinstance(seen, AttemptEnded) and seen.cause is EndCause.NOT_STARTED:
        return replace(seen, cause=EndCause.LOST, detail=_LOST_DETAIL)
    return seen


def _needs_round(changes: StoreChanges, own_jobs: set[JobId]) -> bool:
    return bool(changes.added_jobs) or any(
        job_id not in own_jobs or values.get("state") is JobState.PENDING
        for job_id, values in changes.changed_jobs
    )
