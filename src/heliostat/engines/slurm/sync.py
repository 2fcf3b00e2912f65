"""The one thread that talks to Slurm, in rounds: submit what is new, look at all jobs with one question, send what
is to be stopped. While Slurm is away everything is kept and done when it is back.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from heliostat.engines.contract import Report
from heliostat.engines.slurm.accounts.sacctmgr import SlurmAccounts
from heliostat.engines.slurm.arrays import Chunk, chunks_of
from heliostat.engines.slurm.cluster_state import ClusterState
from heliostat.engines.slurm.foreign_jobs import ForeignJobs
from heliostat.engines.slurm.observe import Observer
from heliostat.engines.slurm.submit import Submitter
from heliostat.engines.slurm.timing import Backoff, NotNow, PollTimer, SlurmTiming
from heliostat.engines.slurm.tracked_job import TrackedJobs, with_limit
from heliostat.engines.slurm.usage import OwedUsage
from heliostat.errors import EngineUnavailable
from heliostat.models import Attempt, AttemptId, Cause, Observation
from heliostat.server_log import get_logger

log = get_logger()
_AT_ONCE = 50  # submissions before we look again at what runs and is to stop
_GATHERING_SECONDS = 0.1  # after a submission, in which others arrive that can go together
_AT_THE_SAME_TIME = 4


@dataclass(frozen=True, slots=True)
class Parts:
    """What the thread keeps in step with Slurm."""

    tracked: TrackedJobs
    submitter: Submitter
    observer: Observer
    cluster: ClusterState
    foreign: ForeignJobs
    accounts: SlurmAccounts
    owed: OwedUsage


class SyncLoop:
    """Anybody may say what is wanted; the thread, or whoever has the `turn`, says it to Slurm."""

    def __init__(self, parts: Parts, timing: SlurmTiming) -> None:
        self._tracked, self._submitter, self._observer = parts.tracked, parts.submitter, parts.observer
        self._cluster, self._foreign = parts.cluster, parts.foreign
        self._accounts, self._owed = parts.accounts, parts.owed
        self._timing = timing
        self._observer.look_seconds = timing.look_seconds
        self._timer = PollTimer(timing.look_seconds)
        self.backoff = Backoff(timing.look_seconds, timing.longest_backoff_seconds)  # of submissions
        self.turn = threading.Lock()  # held by whoever talks to Slurm
        self._wake = threading.Condition()
        self._arrived: dict[AttemptId, Attempt] = {}
        self._wishes: list[tuple[AttemptId, float, str]] = []  # to stop: whom, kill at, signal
        self._orphans: set[AttemptId] = set()
        self._knows_ours = False  # until then anything might be
        self._next_others = self._next_submission = 0.0
        self._is_hindered = False  # a submission of this round found Slurm away
        self._failed = False  # the last round did not come to its end
        self._closed = False
        self.away: str | None = None  # why Slurm does not answer
        self.report: Report = lambda observations: None
        self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)

    def begin(self) -> None:
        """With a first look at what Slurm has; it may be away."""
        self._try(self._cluster.look)
        self._accounts.look_if_old()
        self._thread.start()

    def end(self) -> None:
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
        with self.turn:
            for attempt in attempts:
                if attempt.id not in self._arrived:
                    self._observer.take_up(attempt)
            self._try(self._observer.look)
            told = self._tracked.told()
            for seen in told:
                new.get(seen.attempt_id, []).append(seen)
            answer = [seen for attempt_id, news in new.items() for seen in news or self._tracked.known(attempt_id)]
        if others := [seen for seen in told if seen.attempt_id not in new]:
            self.report(others)
        return answer

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        with self._wake:
            self._wishes.append((attempt.id, time.monotonic() + grace_seconds, signal))
            self._wake.notify()

    def forget_all_but(self, attempt_ids: Collection[AttemptId]) -> None:
        """Whatever else of ours is in Slurm was cancelled or held while we could not tell it."""
        with self._wake:
            self._orphans |= set(self._tracked.journal.ids()) - set(attempt_ids)
            self._knows_ours = True
            self._wake.notify()

    def lengthen(self, attempt: Attempt, limit_seconds: int) -> bool:
        """The limit of one that Slurm does not have yet; False, if it has. For whoever has the turn."""
        arrived = self._arrived.get(attempt.id)
        if arrived is not None:
            self._arrived[attempt.id] = with_limit(arrived, limit_seconds)
        return arrived is not None

    def _is_new(self, attempt: Attempt) -> bool:
        if attempt.id in self._arrived or attempt.id in self._tracked.jobs or attempt.id in self._tracked.over:
            return False
        return self._tracked.journal.find(attempt.id) is None

    def _run(self) -> None:
        while not self._closed:
            self._rest()
            if self._closed:
                return
            with self.turn:
                self._try(self._round)
                told = self._tracked.told()
            if told:
                self.report(told)
            if self._failed:
                time.sleep(self._timing.look_seconds)

    def _rest(self) -> None:
        """Until it is time to look, or something is to be done: what arrives alone at once, many together."""
        while self._timer.left > 0 and self._is_idle():
            self._timer.glance()
        with self._wake:
            if self._has_ready and (left := self._next_submission - time.monotonic()) > 0:
                self._wake.wait_for(lambda: self._wishes or self._closed, left)

    def _is_idle(self) -> bool:
        """Nothing is to be done, and nothing came for a moment."""
        with self._wake:
            if self._wishes or self._closed or self._has_ready:
                return False
            return not self._wake.wait(self._timer.glance_left)

    @property
    def _has_ready(self) -> bool:
        """Something can be submitted at once."""
        return any(self.backoff.is_due(attempt_id) for attempt_id in list(self._arrived))

    def _round(self) -> None:
        """Slurm is looked at and what is to be stopped is stopped, whatever became of what was to be submitted."""
        is_time = bool(self._wishes) or self._timer.left == 0 or self.away is not None
        failed = [error for part in (self._stop_wished, self._submit_arrived) if (error := _failure_of(part))]
        if is_time:
            self._timer.begin(self._tracked.jobs.values())
            self._look_at_all()
            self._timer.end()
            self._observer.send_signals()
        self._cancel_orphans()
        self._cluster.look_if_old()
        self._accounts.look_if_old()
        if failed:
            raise failed[0]

    def _cancel_orphans(self) -> None:
        """Once all of them that may come to Slurm are there."""
        if (orphans := set(self._orphans)) and self._submitter.is_alone:
            self._submitter.cancel_orphans(orphans)
            self._owed.owe(orphans)
            self._orphans -= orphans

    def _try(self, talk: Callable[[], None]) -> None:
        """Slurm may be away: then the rest waits, and everybody is told why."""
        self._failed = True
        try:
            talk()
        except EngineUnavailable as error:
            if self.away is None:
                log.warning("slurm_away", error=error.message)
            self.away = error.message
        except Exception:
            log.exception("slurm_round_failed")
        else:
            if self.away is not None:
                log.info("slurm_back")
                self.backoff.hurry()
            self.away, self._failed = None, False

    def _stop_wished(self) -> None:
        """A wish stays until it is done: Slurm may be away in the middle."""
        for wish in list(self._wishes):
            attempt_id, kill_at, signal = wish
            if attempt := self._arrived.get(attempt_id):
                self._submitter.withdraw(attempt)
                self._no_longer_new(attempt)
            if tracked := self._tracked.jobs.get(attempt_id) or self._tracked.successor_of(attempt_id):
                tracked.ask_to_stop(Cause.STOPPED, signal, kill_at)
            with self._wake:
                self._wishes.remove(wish)

    def _submit_arrived(self) -> None:
        """Several at the same time: Slurm answers each after a while, and the order need not be exact."""
        arrived = list(self._arrived.values())
        self._no_longer_new(
            *(one for one in arrived if one.id in self._tracked.over or one.id in self._tracked.jobs)
        )
        due = [one for one in list(self._arrived.values()) if self.backoff.is_due(one.id)]
        chunks = list(islice(chunks_of(due, self._cluster.max_array_size), _AT_ONCE))
        if not chunks:
            return
        self._next_submission = time.monotonic() + _GATHERING_SECONDS
        self._is_hindered = False
        with ThreadPoolExecutor(_AT_THE_SAME_TIME) as pool:
            list(pool.map(self._submit, chunks))

    def _submit(self, chunk: Chunk) -> None:
        """One that does not go through is put off. If that may hold for all, the others wait for the next round:
        what runs is looked at in between."""
        if self._closed or self._is_hindered:
            return
        ids = [attempt.id for attempt in chunk.attempts]
        try:
            self._submitter.submit_chunk(chunk)
        except EngineUnavailable as error:
            self._is_hindered = True
            self.backoff.put_off(ids, error.message)
        except NotNow as error:
            left = [attempt_id for attempt_id in ids if attempt_id not in self._tracked.jobs]
            if len(left) < len(ids):  # it goes on, bit by bit
                self.backoff.forget(ids)
            self.backoff.put_off(left, str(error))
        except Exception as error:
            log.exception("slurm_submission_failed", attempt=chunk.first.id)
            said = getattr(error, "strerror", None) or type(error).__name__
            self.backoff.put_off(ids, f"it could not be handed over: {said}")
        else:
            self._no_longer_new(*chunk.attempts)

    def _no_longer_new(self, *attempts: Attempt) -> None:
        with self._wake:
            for attempt in attempts:
                self._arrived.pop(attempt.id, None)
        self.backoff.forget(attempt.id for attempt in attempts)

    def _look_at_all(self) -> None:
        """At the jobs of others too, but not as often; while we have none, only then."""
        is_time = self._knows_ours and time.monotonic() >= self._next_others
        self._observer.look(others=is_time)
        if is_time:
            self._next_others = time.monotonic() + self._timing.others_seconds
            self._foreign.look(self._observer.queue, self._tracked.numbers)
            self._submitter.cancel_late()


def _failure_of(part: Callable[[], None]) -> Exception | None:
    try:
        part()
    except EngineUnavailable as error:
        return error
    except Exception as error:
        log.exception("slurm_round_failed_in_part")
        return error
    return None
