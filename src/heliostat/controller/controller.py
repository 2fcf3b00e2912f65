"""Moves the world towards what the database says: observe, plan, record, carry out.

One thread owns the picture of the queue. It sleeps until something happens: a commit, an observation of the
engine, a change of nodes, a time to try again. Everything that has happened by then is handled in one round with
one commit.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from heliostat.config import Settings
from heliostat.controller.environment_installation import install_build_result
from heliostat.controller.inbox import Inbox, RoundInput
from heliostat.controller.node_inventory import NodeInventory
from heliostat.controller.queue import SyncedQueue
from heliostat.controller.round_recording import ReconcileRound, record_round
from heliostat.controller.shares_and_quotas import SchedulingRules
from heliostat.controller.transition_rules import transitions_for_observation
from heliostat.controller.usage_history import load_usage_history
from heliostat.controller.workflow_results import collect_results
from heliostat.engines.contract import Engine, HasOwnQueue, ReportsCheckpoints
from heliostat.errors import HeliostatError
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
from heliostat.store import jobs as stored
from heliostat.store import transitions
from heliostat.store.database import Store, StoreChanges

log = get_logger()

_LONGEST_SLEEP_SECONDS = 3600.0
_LOOK_SECONDS = 5.0  # between looks for checkpoints
_CATCH_UP_SECONDS = 0.2

_TRIES = 5


@dataclass(frozen=True, slots=True)
class ControllerComponents:
    """What the controller works with."""

    store: Store
    engine: Engine
    node_inventory: NodeInventory
    rules: SchedulingRules
    settings: Settings


class Controller:
    def __init__(
        self,
        parts: ControllerComponents,
        now: Callable[[], datetime],
        policy: SchedulingPolicy | None = None,
        *,
        retry_seconds: float = 1.0,
    ) -> None:
        """`retry_seconds`: after a failed round, and after the first failed start of a job."""
        self._store, self._engine, self._fleet, self._rules = (
            parts.store,
            parts.engine,
            parts.node_inventory,
            parts.rules,
        )
        self._settings = parts.settings
        self._now = now
        self._policy = policy or SchedulingPolicy()
        self._queue = SyncedQueue(QueueState(self._policy))
        self._made = Plan()
        self._explainer = WaitExplainer(self._queue.state.snapshot(now()), self._policy, self._made, now())
        self._inbox = Inbox()
        self._retries, self._retry_seconds = StartRetries(retry_seconds), retry_seconds
        self._stop_asked: dict[AttemptId, str] = {}  # and why
        self._next_look = 0.0  # for checkpoints
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)

    def start(self) -> None:
        """Take up what an earlier server left, then go on."""
        self._store.on_commit(self._on_commit)
        self._fleet.on_change(self._inbox.request_round)
        self._rules.on_change(self._inbox.request_round)
        self._engine.set_observation_callback(self._inbox.put_observations)
        attempts = self._take_up()
        self._engine.forget_all_except({attempt.id for attempt in attempts})
        self._thread.start()

    def close(self) -> None:
        self._inbox.close()
        if self._thread.is_alive():
            self._thread.join()

    def wait_reason(self, job: Job) -> str | None:
        """Why a job waits, as of the newest plan."""
        if job.state is not JobState.PENDING:
            waiting = self.engine_wait_reason(job)
            return waiting.reason if waiting else job.reason
        waiting, words = self.engine_wait_reason(job), self._queue.explain_ineligible(job, self._now())
        if words and is_own_explanation_better(waiting):
            return words
        if job.dispatched:
            return waiting.reason if waiting else "has just been handed over"
        return self._explainer.short_reason(job.id) or job.reason or "has just been submitted"

    def explain_wait(self, job_id: JobId) -> WaitExplanation | None:
        """All that can be said about a waiting job, as of the newest plan; None: it does not wait in the queue."""
        job = self._queue.get(job_id)
        waiting = self.engine_wait_reason(job) if job and job.dispatched else None
        if job and not job.is_eligible(self._now()):
            return None
        return explain_engine_wait(job_id, waiting) if waiting else self._explainer.explain(job_id)

    def engine_wait_reason(self, job: Job) -> WaitReason | None:
        """What the engine says of one that waits in a queue of its own, or was suspended there."""
        if not (job.dispatched or job.state is JobState.RUNNING) or not isinstance(self._engine, HasOwnQueue):
            return None
        return self._engine.wait_reason(job.attempt_id)

    def copy_queue_state(self) -> QueueState:
        """A copy of the queue to think with."""
        return self._queue.copy_state()

    def latest_queue_state(self) -> QueueState:
        """The same, with what has been stored a moment ago. May wait for a round."""
        self._inbox.wait_until_handled(_CATCH_UP_SECONDS)
        return self.copy_queue_state()

    def active_jobs_and_pending_count(self) -> tuple[list[Job], int]:
        """The jobs that start or run, and how many wait, as of the newest round."""
        return self._queue.active_jobs_and_pending_count()

    def count_unfinished_jobs(self, user: str) -> int:
        """How many of the user's jobs are not over, as of the newest round."""
        return self._queue.count_unfinished_jobs(user)

    def _on_commit(self, changes: StoreChanges) -> None:
        if changes.added_jobs or changes.changed_jobs:
            self._inbox.put_changes(changes)

    def _run(self) -> None:
        while not self._inbox.is_closed:
            news = self._inbox.take(self._seconds_to_next_try)
            try:
                self._handle(news)
            except Exception as error:  # noqa: BLE001 - this thread must not die
                self._recover(news, error)

    def _handle(self, news: RoundInput) -> None:
        self._apply(news.changes, self._now())
        self._stop_those_asked_for(news.changes)
        news.observations = [self._settled(seen) for seen in news.observations]
        this_round = self._decide(news)
        if not this_round.has_changes:
            return
        self._store.write(lambda tx: record_round(tx, this_round, self._moves_for))
        self._carry_out(this_round)
        self._apply_own_changes(this_round)

    def _settled(self, seen: Observation) -> Observation:
        """What a job has made is in its place before those who wait for it start."""
        if not isinstance(seen, AttemptEnded):
            return seen
        job = self._queue.get(job_id_of_attempt(seen.attempt_id))
        is_newest = job is not None and job.attempt_id == seen.attempt_id
        if job is None or not is_newest:
            return seen
        settled = collect_results(self._store, self._engine, self._settings.home, job, seen)
        return install_build_result(self._settings, self._engine, job, settled)

    def _apply(self, changes: Sequence[StoreChanges], now: datetime) -> None:
        """Who was cancelled or held leaves the engine's queue too."""
        for change in changes:
            for job_id, values in change.changed_jobs:
                job = self._queue.get(job_id)
                if job and job.dispatched and values.get("state") in (JobState.CANCELLED, JobState.HELD):
                    self._engine.stop(Attempt(job.attempt_id, job, ""), 0.0)
            self._queue.apply_changes(change, now)

    def _decide(self, news: RoundInput) -> ReconcileRound:
        now, observations = self._now(), news.observations
        if news.has_only_starts and self._seconds_to_next_try() != 0.0:
            return ReconcileRound(observations, Plan(), now)
        gone = [seen.attempt_id for seen in observations if isinstance(seen, AttemptEnded)]
        self._queue.update_cluster(
            self._fleet.nodes(), self._rules.share_accounts(), self._rules.reservations(now), now
        )
        abilities = self._engine.capabilities
        if abilities.has_own_queue:
            ready = self._queue.jobs_to_dispatch(abilities, self._retries.delayed_jobs(), now, gone)
            self._made = Plan(wake_at=self._queue.state.next_begin_at())
            return ReconcileRound(observations, self._made, now, ready)
        self._look_for_checkpoints(now)
        snapshot = self._queue.snapshot(now, gone, self._retries.delayed_jobs())
        self._made = plan(snapshot, self._policy, now)
        self._explainer = WaitExplainer(snapshot, self._policy, self._made, now)
        return ReconcileRound(observations, self._made, now)

    def _look_for_checkpoints(self, now: datetime) -> None:
        """Those who may be sent away lose less if they have just saved their work."""
        if not isinstance(self._engine, ReportsCheckpoints) or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_SECONDS
        jobs = [job for job in self._queue.active_jobs() if job.preemptible and job.started_at]
        attempts = [Attempt(job.attempt_id, job, job.node or "", job.devices) for job in jobs]
        for attempt_id, saved_at in (self._engine.checkpoint_times(attempts) if attempts else {}).items():
            self._queue.record_checkpoint(attempt_id, saved_at, now)

    def _moves_for(self, seen: AttemptStarted | AttemptEnded) -> list[transitions.JobTransition]:
        job = self._newest(seen)
        if job is None:
            return []
        return transitions_for_observation(job, seen, may_try_again=self._retries.may_retry(job.id))

    def _newest(self, seen: AttemptStarted | AttemptEnded) -> Job | None:
        """The job, unless it is a late word: of an attempt that is no longer the newest, or whose end is known."""
        job = self._queue.get(job_id_of_attempt(seen.attempt_id))
        if job is None or job.attempt_id != seen.attempt_id or not (job.state in ACTIVE_STATES or job.dispatched):
            return None
        return job

    def _carry_out(self, this_round: ReconcileRound) -> None:
        self._retries.record_observations(this_round.observations)
        self._engine.start(this_round.started)
        if this_round.ended:
            for attempt_id in this_round.ended:
                self._stop_asked.pop(attempt_id, None)
            self._engine.forget(this_round.ended)

    def _apply_own_changes(self, this_round: ReconcileRound) -> None:
        """What we have just recorded needs no other plan, unless a job waits again because of it."""
        ours = {job_id_of_attempt(seen.attempt_id) for seen in this_round.observations}
        ours |= {attempt.job.id for attempt in this_round.started}
        changes = self._inbox.take_changes(lambda taken: any(_is_news(change, ours) for change in taken))
        self._apply(changes, this_round.now)
        self._stop_those_asked_for(changes)

    def _stop_those_asked_for(self, changes: Sequence[StoreChanges]) -> None:
        moved = [move for change in changes for move in change.changed_jobs]
        for job_id in {job_id for job_id, values in moved if values.get("stop_requested")}:
            if job := self._queue.get(job_id):
                self._stop(job)

    def _stop(self, job: Job) -> None:
        """Once for each reason: who is asked to make room may be cancelled while it saves its work."""
        if job.stop_requested is None or job.node is None:
            return
        if self._stop_asked.get(job.attempt_id) == job.stop_requested:
            return
        self._stop_asked[job.attempt_id] = job.stop_requested
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

    def _recover(self, news: RoundInput, error: Exception) -> None:
        """The database could not be written, or we have a bug: start afresh from the database, a little later."""
        if isinstance(error, HeliostatError):
            log.error("round_failed", error=str(error))
        else:
            log.exception("round_failed")
        time.sleep(self._retry_seconds)
        self._inbox.put_back_observations(news.observations)
        try:
            self._take_up()
        except Exception:
            log.exception("reload_failed")

    def _take_up(self) -> list[Attempt]:
        """Begin with what the database says, and ask the engine what became of what it says is running."""
        self._load()
        attempts = self._attempts_of([*self._queue.active_jobs(), *self._queue.dispatched_jobs()])
        running = {attempt.id for attempt in attempts if attempt.job.state is JobState.RUNNING}
        seen = self._engine.observe(attempts)
        self._inbox.put_observations(
            [one for one in seen if not (isinstance(one, AttemptStarted) and one.attempt_id in running)]
        )
        self._stop_asked.clear()  # the round may have failed before the engine heard of them
        for job in self._queue.active_jobs():
            self._stop(job)
        return attempts

    def _load(self) -> None:
        self._inbox.discard_changes()
        with self._store.read() as conn:
            unfinished = stored.list_unfinished_jobs(conn)
        board = QueueState(self._policy)
        board.set_nodes(self._fleet.nodes())
        board.set_accounts(self._rules.share_accounts())
        board.add_past_usage(load_usage_history(self._store, self._policy, self._now()), self._now())
        self._queue = SyncedQueue(board, unfinished, self._now())

    def _seconds_to_next_try(self) -> float | None:
        waits = self._retries.seconds_until_retries()
        if self._made.wake_at is not None:
            waits.append((self._made.wake_at - self._now()).total_seconds())
        return min(max(0.0, min(waits)), _LONGEST_SLEEP_SECONDS) if waits else None


def _is_news(changes: StoreChanges, ours: set[JobId]) -> bool:
    return bool(changes.added_jobs) or any(
        job_id not in ours or values.get("state") is JobState.PENDING for job_id, values in changes.changed_jobs
    )


class StartRetries:
    """Attempts that the engine could not start are started again a few times, each after a longer while."""

    def __init__(self, retry_seconds: float) -> None:
        """`retry_seconds` until the second try; twice as long for each one after it."""
        self._retry_seconds = retry_seconds
        self._failed: dict[JobId, int] = {}
        self._not_before: dict[JobId, float] = {}

    def record_observations(self, observations: Iterable[Observation]) -> None:
        for seen in observations:
            job_id = job_id_of_attempt(seen.attempt_id)
            if isinstance(seen, AttemptStarted):
                self._failed.pop(job_id, None)
            elif isinstance(seen, AttemptEnded) and seen.cause is EndCause.NOT_STARTED and seen.detail:
                failed = self._failed[job_id] = self._failed.get(job_id, 0) + 1
                self._not_before[job_id] = time.monotonic() + self._retry_seconds * 2 ** (failed - 1)

    def may_retry(self, job_id: JobId) -> bool:
        return self._failed.get(job_id, 0) < _TRIES

    def delayed_jobs(self) -> set[JobId]:
        """Whose time to try again has not come."""
        now = time.monotonic()
        self._not_before = {job_id: when for job_id, when in self._not_before.items() if when > now}
        return set(self._not_before)

    def seconds_until_retries(self) -> list[float]:
        """Until each of them."""
        now = time.monotonic()
        return [when - now for when in self._not_before.values()]
