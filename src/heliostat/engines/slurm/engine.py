"""Hands attempts to Slurm, which decides when and where they run, and reports what becomes of them.

One thread talks to Slurm, in rounds: submit what is new, look at all jobs with one question, send what is to be
stopped. While Slurm is away everything is kept and done when it is back.
"""

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import structlog

from heliostat.config import Settings
from heliostat.engines.contract import Capabilities, Report
from heliostat.engines.folders import JobFolder
from heliostat.engines.slurm.commands import Commands, SlurmRefused
from heliostat.engines.slurm.machines import node_of
from heliostat.engines.slurm.rounds import Rounds
from heliostat.engines.slurm.usage import OwedUsage
from heliostat.errors import Conflict, EngineUnavailable
from heliostat.models import Attempt, AttemptId, AttemptUsage, Cause, JobId, Node, Observation, Reading

log = structlog.get_logger()
_LOOK_SECONDS = 1.0
_NODES_SECONDS = 5.0
_ASKED_AT_ONCE = 500  # jobs whose use is asked for
_AT_ONCE = 50  # submissions before we look again at what runs and is to stop


class SlurmEngine:
    """Fulfils `Engine`, `Reports`, `KeepsLogs`, `SaysWhy`, `DrainsNodes`, `SamplesNodes` and `Accounts`."""

    name = "slurm"
    capabilities = Capabilities(queues_itself=True)

    def __init__(self, settings: Settings, commands: Commands | None = None, look: float = _LOOK_SECONDS) -> None:
        self._settings, self._look_seconds = settings, look
        self._commands = commands or Commands(settings.home.attempts / "submitting.lock")
        facts = f"{socket.gethostname()}:{settings.home.path}"
        self.instance = hashlib.sha256(facts.encode()).hexdigest()[:12]
        self._rounds = Rounds(settings, self._commands, self.instance)
        self._owed = OwedUsage(settings.home.attempts)
        self._turn = threading.Lock()  # held by whoever talks to Slurm
        self._wake = threading.Condition()
        self._arrived: dict[AttemptId, Attempt] = {}
        self._wishes: list[tuple[AttemptId, float, str]] = []  # to stop: whom, kill at, signal
        self._orphans: set[AttemptId] = set()
        self._nodes: list[Node] = []
        self._next_nodes = 0.0
        self._away: str | None = None  # why Slurm does not answer
        self._failed = False  # the last round did not come to its end
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
        new: dict[AttemptId, list[Observation]] = {attempt.id: [] for attempt in attempts}
        with self._turn:
            for attempt in attempts:
                if attempt.id not in self._arrived:
                    self._rounds.take_up(attempt)
            self._try(self._look)
            told = self._rounds.told()
            for seen in told:
                new.get(seen.attempt_id, []).append(seen)
            answer = [seen for attempt_id, news in new.items() for seen in news or self._rounds.known(attempt_id)]
        if others := [seen for seen in told if seen.attempt_id not in new]:
            self._report(others)
        return answer

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        with self._wake:
            self._wishes.append((attempt.id, time.monotonic() + grace_seconds, signal))
            self._wake.notify()

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        gone = list(attempt_ids)
        for attempt_id in gone:
            self._rounds.over.pop(attempt_id, None)
        self._owed.owe(gone)

    def forget_all_but(self, attempt_ids: Collection[AttemptId]) -> None:
        """Whatever else of ours is in Slurm was cancelled or held while we could not tell it."""
        with self._wake:
            self._orphans |= set(self._rounds.traces.ids()) - set(attempt_ids)
            self._wake.notify()

    def waiting_reason(self, attempt_id: AttemptId) -> str | None:
        handed = self._rounds.handed.get(attempt_id)
        if self._away and (handed is None or handed.number is None):
            return f"waits to be handed to Slurm: {self._away}"
        return handed.reason if handed else None

    def log_path(self, job_id: JobId, attempt: int, stream: str) -> Path:
        return Path(JobFolder.of(self._settings.home.jobs, job_id).log(attempt, stream))

    def log_order(self, job_id: JobId, attempt: int) -> list[tuple[str, int]]:
        return []

    def sample_nodes(self) -> dict[str, Reading]:
        """Of nodes only: to ask what each running job uses, Slurm would have to ask every node for every job."""
        try:
            return self._commands.loads()
        except (EngineUnavailable, SlurmRefused):
            return {}  # it is said elsewhere that Slurm is away

    def used(self) -> dict[AttemptId, AttemptUsage | None]:
        owed = self._owed.all(_ASKED_AT_ONCE)
        try:
            known = self._commands.uses([one.number for one in owed]) if owed else {}
        except EngineUnavailable:
            return {}
        except SlurmRefused:
            known = {}  # there is no accounting
        told = [(one.attempt_id, *one.settled(known.get(one.number), time.time())) for one in owed]
        return {attempt_id: usage for attempt_id, is_settled, usage in told if is_settled}

    def noted(self, attempt_ids: Iterable[AttemptId]) -> None:
        self._owed.remove(attempt_ids)

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _is_new(self, attempt: Attempt) -> bool:
        if attempt.id in self._arrived or attempt.id in self._rounds.handed or attempt.id in self._rounds.over:
            return False
        return self._rounds.traces.find(attempt.id) is None

    def _run(self) -> None:
        while not self._closed:
            with self._wake:
                if not (self._arrived or self._wishes or self._closed):
                    self._wake.wait(self._look_seconds)
            if self._closed:
                return
            with self._turn:
                self._try(self._round)
                told = self._rounds.told()
            if told:
                self._report(told)
            if self._failed:
                time.sleep(self._look_seconds)

    def _round(self) -> None:
        self._stop_wished()
        self._submit_arrived()
        self._look()
        self._rounds.send_signals()
        for attempt_id in list(self._orphans):
            self._rounds.cancel_orphan(attempt_id)
            self._owed.owe([attempt_id])
            self._orphans.discard(attempt_id)
        if time.monotonic() >= self._next_nodes:
            self._look_at_nodes()

    def _try(self, talk: Callable[[], None]) -> None:
        """Slurm may be away: then the rest waits, and everybody is told why."""
        self._failed = True
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
            self._away, self._failed = None, False

    def _stop_wished(self) -> None:
        """A wish stays until it is done: Slurm may be away in the middle."""
        for wish in list(self._wishes):
            attempt_id, kill_at, signal = wish
            if attempt := self._arrived.get(attempt_id):
                self._rounds.withdraw(attempt)
                self._no_longer_new(attempt)
            if handed := self._rounds.handed.get(attempt_id):
                handed.ask_to_stop(Cause.STOPPED, signal, kill_at)
            with self._wake:
                self._wishes.remove(wish)

    def _submit_arrived(self) -> None:
        for attempt in list(self._arrived.values())[:_AT_ONCE]:
            if self._closed:
                return
            self._rounds.submit(attempt)
            self._no_longer_new(attempt)

    def _no_longer_new(self, attempt: Attempt) -> None:
        with self._wake:
            self._arrived.pop(attempt.id, None)

    def _look(self) -> None:
        self._rounds.look({device.uuid: device.type for node in self._nodes for device in node.devices})

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
