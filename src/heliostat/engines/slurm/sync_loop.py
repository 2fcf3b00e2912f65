"""The sync loop: the one thread that runs Slurm's commands. Each round submits new attempts, polls all jobs with
one query, and sends signals. While Slurm is unavailable, everything is kept and done later.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from heliostat.engines.code_layout import CodeLayout
from heliostat.engines.contract import ObservationCallback
from heliostat.engines.slurm.accounts.sacctmgr import SlurmAccounts
from heliostat.engines.slurm.arrays import SubmissionChunk, group_into_chunks
from heliostat.engines.slurm.cluster_state import ClusterState
from heliostat.engines.slurm.foreign_jobs import ForeignJobs
from heliostat.engines.slurm.observer import Observer
from heliostat.engines.slurm.polling import Backoff, PollTimer, SlurmTiming, SubmissionDelayed
from heliostat.engines.slurm.submitter import Submitter
from heliostat.engines.slurm.tracked_jobs import TrackedJobs, with_time_limit
from heliostat.engines.slurm.usage import PendingUsageFolder
from heliostat.errors import EngineUnavailable
from heliostat.models import Attempt, AttemptId, EndCause, Observation
from heliostat.server_log import get_logger

log = get_logger()
_MAX_CHUNKS_PER_ROUND = 50  # then running jobs are polled again
_COALESCING_SECONDS = 0.1  # after a submission: attempts that arrive meanwhile are submitted together
_PARALLEL_SUBMISSIONS = 4


@dataclass(frozen=True, slots=True)
class SyncParts:
    """The components that the loop calls."""

    tracked_jobs: TrackedJobs
    submitter: Submitter
    observer: Observer
    cluster: ClusterState
    foreign_jobs: ForeignJobs
    accounts: SlurmAccounts
    pending_usage: PendingUsageFolder
    code: CodeLayout


class SyncLoop:
    """Any thread may make requests; only the loop, or the holder of `slurm_lock`, runs Slurm's commands."""

    def __init__(self, parts: SyncParts, timing: SlurmTiming) -> None:
        self._tracked, self._submitter, self._observer = parts.tracked_jobs, parts.submitter, parts.observer
        self._cluster, self._foreign = parts.cluster, parts.foreign_jobs
        self._accounts, self._pending_usage = parts.accounts, parts.pending_usage
        self._code = parts.code
        self._timing = timing
        self._observer.poll_seconds = timing.poll_seconds
        self._timer = PollTimer(timing.poll_seconds)
        self.backoff = Backoff(timing.poll_seconds, timing.max_backoff_seconds)  # of submissions
        self.slurm_lock = threading.Lock()  # held while Slurm's commands run
        self._wake = threading.Condition()
        self._arrived: dict[AttemptId, Attempt] = {}
        self._stop_requests: list[tuple[AttemptId, float, str]] = []  # attempt, when to kill it, signal
        self._orphans: set[AttemptId] = set()
        self._knows_our_jobs = False  # until then, foreign jobs cannot be distinguished
        self._next_foreign = self._next_submission = 0.0
        self._slurm_is_unavailable = False  # for a submission of this round
        self._failed = False  # the last round failed
        self._closed = False
        self.unavailable_reason: str | None = None  # None: Slurm responds
        self.answered_at = datetime.now(UTC)  # its last answer, or the start
        self.report: ObservationCallback = lambda observations: None
        self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)

    def start_thread(self) -> None:
        """Polls Slurm once before; it may be unavailable."""
        self._try(self._cluster.refresh)
        self._accounts.refresh_if_stale()
        self._thread.start()

    def stop_thread(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._code.close()

    def start(self, attempts: Sequence[Attempt]) -> None:
        new = {attempt.id: attempt for attempt in attempts if self._is_new(attempt)}
        if new:  # else the next regular poll is enough
            self._lay_out_code([attempt for attempt in new.values() if self._code.is_missing(attempt)])
            with self._wake:
                self._arrived.update(new)
                self._wake.notify()

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        """No observations for attempts that wait in Slurm, or while Slurm is unavailable."""
        new: dict[AttemptId, list[Observation]] = {attempt.id: [] for attempt in attempts}
        with self.slurm_lock:
            for attempt in attempts:
                if attempt.id not in self._arrived:
                    self._observer.adopt(attempt)
            self._try(self._observer.poll)
            reports = self._tracked.take_reports()
            for observation in reports:
                new.get(observation.attempt_id, []).append(observation)
            result = [
                observation
                for attempt_id, observations in new.items()
                for observation in observations or self._tracked.last_observation(attempt_id)
            ]
        if others := [observation for observation in reports if observation.attempt_id not in new]:
            self.report(others)
        return result

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        with self._wake:
            self._stop_requests.append((attempt.id, time.monotonic() + grace_seconds, signal))
            self._wake.notify()

    def forget_all_but(self, attempt_ids: Collection[AttemptId]) -> None:
        """Heliostat's other jobs in Slurm are orphans: they were cancelled or held while Slurm was unavailable."""
        with self._wake:
            self._orphans |= set(self._tracked.journal.attempt_ids()) - set(attempt_ids)
            self._knows_our_jobs = True
            self._wake.notify()

    def extend_unsubmitted(self, attempt: Attempt, limit_seconds: int) -> bool:
        """Sets the limit of an attempt that is not submitted yet. False: it is. Caller must hold `slurm_lock`."""
        arrived = self._arrived.get(attempt.id)
        if arrived is not None:
            self._arrived[attempt.id] = with_time_limit(arrived, limit_seconds)
        return arrived is not None

    def retry_submissions(self) -> None:
        """Submits delayed attempts now, for example because their users have an account in Slurm now."""
        with self.slurm_lock:
            self.backoff.clear()
        self._wake_up()

    def _lay_out_code(self, attempts: Sequence[Attempt]) -> None:
        """Those with the same code together, so that they can be submitted as one array."""
        groups = defaultdict[tuple[str, str | None], list[Attempt]](list)
        for attempt in attempts:
            groups[attempt.job.user, attempt.job.spec.upload].append(attempt)
        for group in groups.values():
            self._code.lay_out(group, self._wake_up)

    def _wake_up(self) -> None:
        with self._wake:
            self._wake.notify()

    def _is_new(self, attempt: Attempt) -> bool:
        if attempt.id in self._arrived or attempt.id in self._tracked.jobs or attempt.id in self._tracked.ended:
            return False
        return self._tracked.journal.find(attempt.id) is None

    def _run(self) -> None:
        while not self._closed:
            self._wait()
            if self._closed:
                return
            with self.slurm_lock:
                self._try(self._round)
                reports = self._tracked.take_reports()
            if reports:
                self.report(reports)
            if self._failed:
                time.sleep(self._timing.poll_seconds)

    def _wait(self) -> None:
        """Until the next poll or a request. A single new attempt is submitted at once, several together."""
        while self._timer.seconds_until_poll > 0 and self._is_idle():
            self._timer.check_receipts()
        with self._wake:
            if self._has_ready and (left := self._next_submission - time.monotonic()) > 0:
                self._wake.wait_for(lambda: self._stop_requests or self._closed, left)

    def _is_idle(self) -> bool:
        """No request is pending, and none arrived for a moment."""
        with self._wake:
            if self._stop_requests or self._closed or self._has_ready:
                return False
            return not self._wake.wait(self._timer.seconds_until_check)

    @property
    def _has_ready(self) -> bool:
        """An attempt can be submitted now."""
        return any(map(self._is_ready, list(self._arrived)))

    def _is_ready(self, attempt_id: AttemptId) -> bool:
        return self.backoff.is_due(attempt_id) and not self._code.is_pending(attempt_id)

    def _round(self) -> None:
        """Polls and sends signals even if submissions fail."""
        is_time = (
            bool(self._stop_requests) or self._timer.seconds_until_poll == 0 or self.unavailable_reason is not None
        )
        errors = [
            error for step in (self._handle_stop_requests, self._submit_arrived) if (error := _run_step(step))
        ]
        if is_time:
            self._timer.begin_poll(self._tracked.jobs.values())
            self._poll_all()
            self._timer.end_poll()
            self._observer.send_signals()
        self._cancel_orphans()
        self._cluster.refresh_if_stale()
        self._accounts.refresh_if_stale()
        if errors:
            raise errors[0]

    def _cancel_orphans(self) -> None:
        """Once no submission of an earlier server is running any more."""
        if (orphans := set(self._orphans)) and self._submitter.is_only_submitter:
            self._submitter.cancel_orphans(orphans)
            self._pending_usage.add(orphans)
            self._orphans -= orphans

    def _try(self, action: Callable[[], None]) -> None:
        """Records in `unavailable_reason` whether Slurm responds."""
        self._failed = True
        try:
            action()
        except EngineUnavailable as error:
            if self.unavailable_reason is None:
                log.warning("slurm_unavailable", error=error.message)
            self.unavailable_reason = error.message
        except Exception:
            log.exception("slurm_round_failed")
        else:
            if self.unavailable_reason is not None:
                log.info("slurm_available_again")
                self.backoff.clear()
            self.unavailable_reason, self._failed, self.answered_at = None, False, datetime.now(UTC)

    def _handle_stop_requests(self) -> None:
        """A request stays until it is done: Slurm may become unavailable midway."""
        for request in list(self._stop_requests):
            attempt_id, kill_at, signal = request
            if attempt := self._arrived.get(attempt_id):
                self._submitter.withdraw(attempt)
                self._remove_arrived(attempt)
            if tracked := self._tracked.jobs.get(attempt_id) or self._tracked.find_successor(attempt_id):
                tracked.request_stop(EndCause.STOPPED, signal, kill_at)
            with self._wake:
                self._stop_requests.remove(request)

    def _submit_arrived(self) -> None:
        """Several in parallel: each takes a while, and the order need not be exact."""
        known = self._tracked
        self._remove_arrived(
            *(a for a in list(self._arrived.values()) if a.id in known.ended or a.id in known.jobs)
        )
        due = [attempt for attempt in list(self._arrived.values()) if self._is_ready(attempt.id)]
        chunks = list(islice(group_into_chunks(due, self._cluster.max_array_size), _MAX_CHUNKS_PER_ROUND))
        if not chunks:
            return
        self._next_submission = time.monotonic() + _COALESCING_SECONDS
        self._slurm_is_unavailable = False
        with ThreadPoolExecutor(_PARALLEL_SUBMISSIONS) as pool:
            list(pool.map(self._submit, chunks))

    def _submit(self, chunk: SubmissionChunk) -> None:
        """A chunk that fails is delayed. If Slurm is unavailable, the others wait for the next round, so that
        running jobs are polled in between."""
        if self._closed or self._slurm_is_unavailable:
            return
        ids = [attempt.id for attempt in chunk.attempts]
        try:
            self._submitter.submit_chunk(chunk)
        except EngineUnavailable as error:
            self._slurm_is_unavailable = True
            self.backoff.delay(ids, error.message)
        except SubmissionDelayed as error:
            left = [attempt_id for attempt_id in ids if attempt_id not in self._tracked.jobs]
            if len(left) < len(ids):  # some were submitted
                self.backoff.forget(ids)
            self.backoff.delay(left, str(error))
        except Exception as error:
            log.exception("slurm_submission_failed", attempt=chunk.first.id)
            message = getattr(error, "strerror", None) or type(error).__name__
            self.backoff.delay(ids, f"the submission failed: {message}")
        else:
            self._remove_arrived(*chunk.attempts)

    def _remove_arrived(self, *attempts: Attempt) -> None:
        with self._wake:
            for attempt in attempts:
                self._arrived.pop(attempt.id, None)
        self.backoff.forget(attempt.id for attempt in attempts)

    def _poll_all(self) -> None:
        """Includes foreign jobs, less often."""
        is_time = self._knows_our_jobs and time.monotonic() >= self._next_foreign
        self._observer.poll(others=is_time)
        if is_time:
            self._next_foreign = time.monotonic() + self._timing.foreign_poll_seconds
            self._foreign.refresh(self._observer.slurm_jobs, self._tracked.slurm_job_ids)
            self._submitter.cancel_late_submissions()


def _run_step(step: Callable[[], None]) -> Exception | None:
    """Returns its error; None: it succeeded."""
    try:
        step()
    except EngineUnavailable as error:
        return error
    except Exception as error:
        log.exception("slurm_round_step_failed")
        return error
    return None
