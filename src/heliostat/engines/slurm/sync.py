"""The one thread that talks to Slurm, in rounds: submit what is new, look at all jobs with one question, send what
is to be stopped. While Slurm is away everything is kept and done when it is back.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from heliostat.engines.contract import ObservationCallback
from heliostat.engines.slurm.accounts.sacctmgr import SlurmAccounts
from heliostat.engines.slurm.arrays import SubmissionChunk, group_into_chunks
from heliostat.engines.slurm.cluster_state import ClusterState
from heliostat.engines.slurm.foreign_jobs import ForeignJobs
from heliostat.engines.slurm.observer import Observer
from heliostat.engines.slurm.submitter import Submitter
from heliostat.engines.slurm.timing import Backoff, PollTimer, SlurmTiming, SubmissionDelayed
from heliostat.engines.slurm.tracked_job import TrackedJobs, with_time_limit
from heliostat.engines.slurm.usage import PendingUsageFolder
from heliostat.errors import EngineUnavailable
from heliostat.models import Attempt, AttemptId, EndCause, Observation
from heliostat.server_log import get_logger

log = get_logger()
_AT_ONCE = 50  # submissions before we look again at what runs and is to stop
_GATHERING_SECONDS = 0.1  # after a submission, in which others arrive that can go together
_AT_THE_SAME_TIME = 4


@dataclass(frozen=True, slots=True)
class SyncParts:
    """What the thread keeps in step with Slurm."""

    tracked_jobs: TrackedJobs
    submitter: Submitter
    observer: Observer
    cluster: ClusterState
    foreign_jobs: ForeignJobs
    accounts: SlurmAccounts
    pending_usage: PendingUsageFolder


class SyncLoop:
    """Anybody may say what is wanted; the thread, or whoever has the `turn`, says it to Slurm."""

    def __init__(self, parts: SyncParts, timing: SlurmTiming) -> None:
        self._tracked, self._submitter, self._observer = parts.tracked_jobs, parts.submitter, parts.observer
        self._cluster, self._foreign = parts.cluster, parts.foreign_jobs
        self._accounts, self._owed = parts.accounts, parts.pending_usage
        self._timing = timing
        self._observer.poll_seconds = timing.poll_seconds
        self._timer = PollTimer(timing.poll_seconds)
        self.backoff = Backoff(timing.poll_seconds, timing.max_backoff_seconds)  # of submissions
        self.slurm_lock = threading.Lock()  # held by whoever talks to Slurm
        self._wake = threading.Condition()
        self._arrived: dict[AttemptId, Attempt] = {}
        self._stop_requests: list[tuple[AttemptId, float, str]] = []  # attempt, when to kill it, signal
        self._orphans: set[AttemptId] = set()
        self._knows_our_jobs = False  # until then anything might be
        self._next_foreign = self._next_submission = 0.0
        self._slurm_is_away = False  # a submission of this round found Slurm away
        self._failed = False  # the last round did not come to its end
        self._closed = False
        self.unavailable_reason: str | None = None  # why Slurm does not answer
        self.report: ObservationCallback = lambda observations: None
        self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)

    def start_thread(self) -> None:
        """With a first look at what Slurm has; it may be away."""
        self._try(self._cluster.refresh)
        self._accounts.refresh_if_stale()
        self._thread.start()

    def stop_thread(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def start(self, attempts: Sequence[Attempt]) -> None:
        new = {attempt.id: attempt for attempt in attempts if self._is_new(attempt)}
        if new:  # else Slurm is asked again when it is time
            with self._wake:
                self._arrived.update(new)
                self._wake.notify()

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        """Of what waits in Slurm, or while Slurm is away, there is nothing to tell yet."""
        new: dict[AttemptId, list[Observation]] = {attempt.id: [] for attempt in attempts}
        with self.slurm_lock:
            for attempt in attempts:
                if attempt.id not in self._arrived:
                    self._observer.adopt(attempt)
            self._try(self._observer.poll)
            told = self._tracked.take_reports()
            for seen in told:
                new.get(seen.attempt_id, []).append(seen)
            answer = [
                seen
                for attempt_id, news in new.items()
                for seen in news or self._tracked.last_observation(attempt_id)
            ]
        if others := [seen for seen in told if seen.attempt_id not in new]:
            self.report(others)
        return answer

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        with self._wake:
            self._stop_requests.append((attempt.id, time.monotonic() + grace_seconds, signal))
            self._wake.notify()

    def forget_all_but(self, attempt_ids: Collection[AttemptId]) -> None:
        """Whatever else of ours is in Slurm was cancelled or held while we could not tell it."""
        with self._wake:
            self._orphans |= set(self._tracked.journal.attempt_ids()) - set(attempt_ids)
            self._knows_our_jobs = True
            self._wake.notify()

    def extend_unsubmitted(self, attempt: Attempt, limit_seconds: int) -> bool:
        """The limit of one that Slurm does not have yet; False, if it has. For whoever has the turn."""
        arrived = self._arrived.get(attempt.id)
        if arrived is not None:
            self._arrived[attempt.id] = with_time_limit(arrived, limit_seconds)
        return arrived is not None

    def _is_new(self, attempt: Attempt) -> bool:
        if attempt.id in self._arrived or attempt.id in self._tracked.jobs or attempt.id in self._tracked.ended:
            return False
        return self._tracked.journal.find(attempt.id) is None

    def _run(self) -> None:
        while not self._closed:
            self._rest()
            if self._closed:
                return
            with self.slurm_lock:
                self._try(self._round)
                told = self._tracked.take_reports()
            if told:
                self.report(told)
            if self._failed:
                time.sleep(self._timing.poll_seconds)

    def _rest(self) -> None:
        """Until it is time to look, or something is to be done: what arrives alone at once, many together."""
        while self._timer.seconds_until_poll > 0 and self._is_idle():
            self._timer.check_receipts()
        with self._wake:
            if self._has_ready and (left := self._next_submission - time.monotonic()) > 0:
                self._wake.wait_for(lambda: self._stop_requests or self._closed, left)

    def _is_idle(self) -> bool:
        """Nothing is to be done, and nothing came for a moment."""
        with self._wake:
            if self._stop_requests or self._closed or self._has_ready:
                return False
            return not self._wake.wait(self._timer.seconds_until_check)

    @property
    def _has_ready(self) -> bool:
        """Something can be submitted at once."""
        return any(self.backoff.is_due(attempt_id) for attempt_id in list(self._arrived))

    def _round(self) -> None:
        """Slurm is looked at and what is to be stopped is stopped, whatever became of what was to be submitted."""
        is_time = (
            bool(self._stop_requests) or self._timer.seconds_until_poll == 0 or self.unavailable_reason is not None
        )
        failed = [
            error for part in (self._handle_stop_requests, self._submit_arrived) if (error := _failure_of(part))
        ]
        if is_time:
            self._timer.begin_poll(self._tracked.jobs.values())
            self._look_at_all()
            self._timer.end_poll()
            self._observer.send_signals()
        self._cancel_orphans()
        self._cluster.refresh_if_stale()
        self._accounts.refresh_if_stale()
        if failed:
            raise failed[0]

    def _cancel_orphans(self) -> None:
        """Once all of them that may come to Slurm are there."""
        if (orphans := set(self._orphans)) and self._submitter.is_only_submitter:
            self._submitter.cancel_orphans(orphans)
            self._owed.add(orphans)
            self._orphans -= orphans

    def _try(self, talk: Callable[[], None]) -> None:
        """Slurm may be away: then the rest waits, and everybody is told why."""
        self._failed = True
        try:
            talk()
        except EngineUnavailable as error:
            if self.unavailable_reason is None:
                log.warning("slurm_away", error=error.message)
            self.unavailable_reason = error.message
        except Exception:
            log.exception("slurm_round_failed")
        else:
            if self.unavailable_reason is not None:
                log.info("slurm_back")
                self.backoff.clear()
            self.unavailable_reason, self._failed = None, False

    def _handle_stop_requests(self) -> None:
        """A request stays until it is done: Slurm may be away in the middle."""
        for request in list(self._stop_requests):
            attempt_id, kill_at, signal = request
            if attempt := self._arrived.get(attempt_id):
                self._submitter.withdraw(attempt)
                self._no_longer_new(attempt)
            if tracked := self._tracked.jobs.get(attempt_id) or self._tracked.find_successor(attempt_id):
                tracked.request_stop(EndCause.STOPPED, signal, kill_at)
            with self._wake:
                self._stop_requests.remove(request)

    def _submit_arrived(self) -> None:
        """Several at the same time: Slurm answers each after a while, and the order need not be exact."""
        arrived = list(self._arrived.values())
        self._no_longer_new(
            *(one for one in arrived if one.id in self._tracked.ended or one.id in self._tracked.jobs)
        )
        due = [one for one in list(self._arrived.values()) if self.backoff.is_due(one.id)]
        chunks = list(islice(group_into_chunks(due, self._cluster.max_array_size), _AT_ONCE))
        if not chunks:
            return
        self._next_submission = time.monotonic() + _GATHERING_SECONDS
        self._slurm_is_away = False
        with ThreadPoolExecutor(_AT_THE_SAME_TIME) as pool:
            list(pool.map(self._submit, chunks))

    def _submit(self, chunk: SubmissionChunk) -> None:
        """One that does not go through is put off. If that may hold for all, the others wait for the next round:
        what runs is looked at in between."""
        if self._closed or self._slurm_is_away:
            return
        ids = [attempt.id for attempt in chunk.attempts]
        try:
            self._submitter.submit_chunk(chunk)
        except EngineUnavailable as error:
            self._slurm_is_away = True
            self.backoff.delay(ids, error.message)
        except SubmissionDelayed as error:
            left = [attempt_id for attempt_id in ids if attempt_id not in self._tracked.jobs]
            if len(left) < len(ids):  # it goes on, bit by bit
                self.backoff.forget(ids)
            self.backoff.delay(left, str(error))
        except Exception as error:
            log.exception("slurm_submission_failed", attempt=chunk.first.id)
            said = getattr(error, "strerror", None) or type(error).__name__
            self.backoff.delay(ids, f"it could not be handed over: {said}")
        else:
            self._no_longer_new(*chunk.attempts)

    def _no_longer_new(self, *attempts: Attempt) -> None:
        with self._wake:
            for attempt in attempts:
                self._arrived.pop(attempt.id, None)
        self.backoff.forget(attempt.id for attempt in attempts)

    def _look_at_all(self) -> None:
        """At the jobs of others too, but not as often; while we have none, only then."""
        is_time = self._knows_our_jobs and time.monotonic() >= self._next_foreign
        self._observer.poll(others=is_time)
        if is_time:
            self._next_foreign = time.monotonic() + self._timing.foreign_poll_seconds
            self._foreign.refresh(self._observer.slurm_jobs, self._tracked.slurm_job_ids)
            self._submitter.cancel_late_submissions()


def _failure_of(part: Callable[[], None]) -> Exception | None:
    try:
        part()
    except EngineUnavailable as error:
        return error
    except Exception as error:
        log.exception("slurm_round_failed_in_part")
        return error
    return None
