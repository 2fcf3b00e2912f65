"""Hands attempts to Slurm, which decides when and where they run, and reports what becomes of them.

One thread talks to Slurm, in rounds: submit what is new, look at all jobs with one question, send what is to be
stopped. While Slurm is away everything is kept and done when it is back.
"""

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import structlog

from heliostat.config import Settings
from heliostat.engines.contract import Capabilities, Report
from heliostat.engines.folders import JobFolder, Refused, person_of
from heliostat.engines.slurm.commands import Commands, SlurmRefused
from heliostat.engines.slurm.handed import Handed, start_of
from heliostat.engines.slurm.machines import node_of
from heliostat.engines.slurm.parse import SlurmJob
from heliostat.engines.slurm.script import Site, Unfit, comment_of
from heliostat.engines.slurm.submission import begun_path, prepared
from heliostat.engines.slurm.traces import Trace, Traces
from heliostat.engines.slurm.words import ending, refusal_in_words, waiting_in_words
from heliostat.errors import Conflict, EngineUnavailable
from heliostat.models import Attempt, AttemptId, Cause, Ended, JobId, Node, Observation

log = structlog.get_logger()
_LOOK_SECONDS = 1.0
_NODES_SECONDS = 5.0
_VAIN_LOOKS = 10  # after which a job that neither queue nor accounting knows is lost


class SlurmEngine:
    """Fulfils `Engine`, `Reports`, `KeepsLogs`, `SaysWhy` and `DrainsNodes`."""

    name = "slurm"
    capabilities = Capabilities(queues_itself=True)

    def __init__(self, settings: Settings, commands: Commands | None = None, look: float = _LOOK_SECONDS) -> None:
        self._settings, self._look_seconds = settings, look
        self._commands = commands or Commands(settings.home.attempts / "submitting.lock")
        facts = f"{socket.gethostname()}:{settings.home.path}"
        self._site = Site(hashlib.sha256(facts.encode()).hexdigest()[:12], os.geteuid() == 0)
        self._traces = Traces(settings.home.attempts)
        self._turn = threading.Lock()  # held by whoever talks to Slurm
        self._wake = threading.Condition()
        self._arrived: dict[AttemptId, Attempt] = {}
        self._wishes: list[tuple[AttemptId, float, str]] = []  # to stop: whom, kill at, signal
        self._handed: dict[AttemptId, Handed] = {}
        self._over: dict[AttemptId, Ended] = {}
        self._orphans: set[AttemptId] = set()
        self._nodes: list[Node] = []
        self._next_nodes = 0.0
        self._away: str | None = None
        self._report: Report = lambda observations: None
        self._nodes_changed: Callable[[], None] = lambda: None
        self._closed = False
        self._commands.wait_for_earlier_submissions()
        self._try(self._look_at_nodes)
        self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)
        self._thread.start()

    def on_observation(self, report: Report) -> None:
        self._report = report

    def on_nodes_changed(self, changed: Callable[[], None]) -> None:
        self._nodes_changed = changed

    def nodes(self) -> list[Node]:
        """As of a few seconds ago: whoever asks never waits for Slurm."""
        return list(self._nodes)

    def drain(self, node: str, reason: str) -> None:
        self._set_node(node, "State=DRAIN", f"Reason={reason}")

    def resume(self, node: str) -> None:
        self._set_node(node, "State=RESUME")

    def start(self, attempts: Sequence[Attempt]) -> None:
        with self._wake:
            self._arrived.update({attempt.id: attempt for attempt in attempts if self._is_new(attempt)})
            self._wake.notify()

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        """Of what waits in Slurm, or while Slurm is away, there is nothing to tell yet."""
        with self._turn:
            told: list[Observation] = []
            for attempt in attempts:
                told += self._take_up(attempt)
            self._try(lambda: told.extend(self._look()))
            wanted = {attempt.id: None for attempt in attempts}
            last = {seen.attempt_id: seen for seen in told}
            known = {id_: self._known(id_) or last.get(id_) for id_ in wanted}
        return [seen for seen in known.values() if seen is not None]

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        with self._wake:
            self._wishes.append((attempt.id, time.monotonic() + grace_seconds, signal))
            self._wake.notify()

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        gone = list(attempt_ids)
        with self._wake:
            for attempt_id in gone:
                self._over.pop(attempt_id, None)
        self._traces.remove(gone)

    def forget_all_but(self, attempt_ids: Collection[AttemptId]) -> None:
        """Whatever else of ours is in Slurm was cancelled while we could not tell it."""
        with self._wake:
            self._orphans |= set(self._traces.ids()) - set(attempt_ids)
            self._wake.notify()

    def waiting_reason(self, attempt_id: AttemptId) -> str | None:
        handed = self._handed.get(attempt_id)
        if self._away and (handed is None or handed.number is None):
            return f"waits to be handed to Slurm: {self._away}"
        return handed.reason if handed else None

    def log_path(self, job_id: JobId, attempt: int, stream: str) -> Path:
        return Path(JobFolder.of(self._settings.home.jobs, job_id).log(attempt, stream))

    def log_order(self, job_id: JobId, attempt: int) -> list[tuple[str, int]]:
        return []

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _is_new(self, attempt: Attempt) -> bool:
        if attempt.id in self._arrived or attempt.id in self._handed or attempt.id in self._over:
            return False
        return self._traces.find(attempt.id) is None

    def _known(self, attempt_id: AttemptId) -> Observation | None:
        handed = self._handed.get(attempt_id)
        return self._over.get(attempt_id) or (handed.started if handed else None)

    def _run(self) -> None:
        while not self._closed:
            with self._wake:
                if not (self._arrived or self._wishes or (self._orphans and not self._away) or self._closed):
                    self._wake.wait(self._look_seconds)
            if self._closed:
                return
            with self._turn:
                told = self._round()
            if told:
                self._report(told)
            if self._away:
                time.sleep(self._look_seconds)

    def _round(self) -> list[Observation]:
        told: list[Observation] = []

        def talk() -> None:
            told.extend(self._stop_wished())
            told.extend(self._submit_arrived())
            told.extend(self._look())
            self._send_signals()
            self._cancel_orphans()
            if time.monotonic() >= self._next_nodes:
                self._look_at_nodes()

        self._try(talk)
        return told

    def _try(self, talk: Callable[[], object]) -> None:
        """Slurm may be away: then the rest waits, and everybody is told why."""
        try:
            talk()
        except EngineUnavailable as error:
            if self._away is None:
                log.warning("slurm_away", error=error.message)
            self._away = error.message
        except Exception:
            log.exception("slurm_round_failed")
        else:
            if self._away is not None:
                log.info("slurm_back")
            self._away = None

    def _submit_arrived(self) -> Iterable[Observation]:
        while self._arrived and not self._closed:
            attempt = next(iter(self._arrived.values()))
            if (told := self._submit(attempt)) is not None:
                yield told
            with self._wake:
                self._arrived.pop(attempt.id, None)

    def _submit(self, attempt: Attempt) -> Ended | None:
        """Noted before and after; if the answer was lost, Slurm is asked before it is handed over once more."""
        try:
            person = person_of(attempt.job.unix_user)
            ready = prepared(attempt, person, self._settings, self._site)
        except (Refused, Unfit) as error:
            return self._end(Ended(attempt.id, _now(), Cause.REFUSED, detail=str(error)))
        except OSError as error:
            detail = f"its files could not be made: {error.strerror}"
            return self._end(Ended(attempt.id, _now(), Cause.NOT_STARTED, detail=detail))
        handed = Handed(attempt, ready.begun, person.uid)
        trace = self._traces.find(attempt.id)
        handed.number = self._find(handed) if trace is not None else None
        if handed.number is None:
            self._traces.put(attempt.id, Trace(person.uid))
            try:
                handed.number = self._commands.submit(ready.argv, ready.script)
            except SlurmRefused as error:
                return self._end(Ended(attempt.id, _now(), Cause.REFUSED, detail=refusal_in_words(str(error))))
        self._traces.put(attempt.id, Trace(person.uid, handed.number))
        self._handed[attempt.id] = handed
        return None

    def _find(self, handed: Handed) -> int | None:
        """The number of an attempt whose answer was lost. Whoever bears its mark must also be of its user."""
        comment = comment_of(self._site.instance, handed.attempt.id)
        numbers = self._commands.numbers_with_comment(handed.uid, comment)
        with contextlib.suppress(OSError, ValueError):
            numbers.append(int(Path(handed.begun).read_text(encoding="ascii")))
        if not numbers:
            return None
        known = self._commands.past_jobs(numbers) | self._commands.jobs()
        return next((number for number in numbers if number in known and known[number].uid == handed.uid), None)

    def _take_up(self, attempt: Attempt) -> list[Observation]:
        """What an earlier server handed over, or did not."""
        if attempt.id in self._handed or attempt.id in self._over or attempt.id in self._arrived:
            return []
        trace = self._traces.find(attempt.id)
        if trace is None or trace.uid is None:
            self._traces.put(attempt.id, Trace(None))
            return [self._end(Ended(attempt.id, _now(), Cause.NOT_STARTED))]
        handed = Handed(attempt, begun_path(self._settings, attempt), trace.uid, trace.number)
        handed.was_tried = trace.number is None
        self._handed[attempt.id] = handed
        return []

    def _stop_wished(self) -> Iterable[Observation]:
        with self._wake:
            wishes, self._wishes = self._wishes, []
        for attempt_id, kill_at, signal in wishes:
            if handed := self._handed.get(attempt_id):
                handed.ask_to_stop(Cause.STOPPED, signal, kill_at)
            elif attempt_id in self._arrived and self._traces.find(attempt_id) is None:
                self._traces.put(attempt_id, Trace(None))
                with self._wake:
                    del self._arrived[attempt_id]
                yield self._end(Ended(attempt_id, _now(), Cause.STOPPED))
            elif attempt_id in self._arrived:  # Slurm may have it: it must answer first
                self._wishes.append((attempt_id, kill_at, signal))

    def _look(self) -> list[Observation]:
        if not self._handed:
            return []
        told: list[Observation] = [end for handed in list(self._handed.values()) if (end := self._settle(handed))]
        jobs = self._commands.jobs()
        unseen = [handed.number for handed in self._handed.values() if handed.number and handed.number not in jobs]
        if unseen:
            jobs |= self._commands.past_jobs(unseen)
        for handed in list(self._handed.values()):
            told += self._follow(handed, jobs.get(handed.number or 0))
        return told

    def _settle(self, handed: Handed) -> Ended | None:
        """Whether Slurm has what an earlier server was about to hand over."""
        if not handed.was_tried:
            return None
        handed.number = self._find(handed)
        handed.was_tried = False
        if handed.number is not None:
            self._traces.put(handed.attempt.id, Trace(handed.uid, handed.number))
            return None
        self._traces.put(handed.attempt.id, Trace(None))
        return self._end(Ended(handed.attempt.id, _now(), Cause.NOT_STARTED))

    def _follow(self, handed: Handed, job: SlurmJob | None) -> list[Observation]:
        if job is None or job.uid != handed.uid:
            return self._miss(handed)
        handed.looks_in_vain = 0
        handed.runs = not job.is_waiting and not job.is_over
        handed.reason = waiting_in_words(job.reason) if job.is_waiting else None
        told: list[Observation] = []
        if job.has_run and handed.started is None:
            handed.started = start_of(handed.attempt, job, _now())
            told.append(handed.started)
        if job.is_over:
            told.append(self._end(ending(handed.attempt, job, handed.stopped_as)))
        return told

    def _miss(self, handed: Handed) -> list[Observation]:
        handed.looks_in_vain += 1
        if handed.looks_in_vain < _VAIN_LOOKS:
            return []
        return [self._end(Ended(handed.attempt.id, _now(), Cause.LOST, detail="Slurm no longer knows it"))]

    def _end(self, end: Ended) -> Ended:
        with self._wake:
            self._handed.pop(end.attempt_id, None)
            self._over[end.attempt_id] = end
        return end

    def _send_signals(self) -> None:
        now = time.monotonic()
        for handed in list(self._handed.values()):
            if handed.is_over_limit(_now()):
                handed.ask_to_stop(Cause.TIMED_OUT, "TERM", now + handed.attempt.job.spec.grace_seconds)
            if handed.number is not None and handed.stopped_as is not None:
                self._send(handed, handed.number, now)

    def _send(self, handed: Handed, number: int, now: float) -> None:
        if not handed.runs:
            self._commands.cancel(number)
            return
        is_late = handed.kill_at is not None and now >= handed.kill_at
        if not handed.hears_signals:
            if is_late:
                self._commands.cancel(number)
            return
        for signal in ["KILL"] if is_late else handed.signals:
            self._commands.signal(number, signal)
        handed.signals.clear()

    def _cancel_orphans(self) -> None:
        for attempt_id in list(self._orphans):
            trace = self._traces.find(attempt_id)
            if trace is not None and trace.uid is not None:
                number = trace.number or self._find_orphan(attempt_id, trace.uid)
                if number is not None:
                    self._commands.cancel(number)
            self._traces.remove([attempt_id])
            self._orphans.discard(attempt_id)

    def _find_orphan(self, attempt_id: AttemptId, uid: int) -> int | None:
        comment = comment_of(self._site.instance, attempt_id)
        known = self._commands.jobs()
        numbers = self._commands.numbers_with_comment(uid, comment)
        return next((number for number in numbers if number in known and known[number].uid == uid), None)

    def _set_node(self, node: str, *values: str) -> None:
        with self._turn:
            try:
                self._commands.update_node(node, *values)
            except SlurmRefused as error:
                raise Conflict(f"Slurm refuses it: {error}.", "See `scontrol show node`.") from error
            self._look_at_nodes()

    def _look_at_nodes(self) -> None:
        nodes = [node_of(node) for node in self._commands.nodes()]
        self._next_nodes = time.monotonic() + _NODES_SECONDS
        if nodes != self._nodes:
            self._nodes = nodes
            self._nodes_changed()


def _now() -> datetime:
    return datetime.now(UTC)
