"""Hands attempts to Slurm, which decides when and where they run, and reports what becomes of them.

One thread talks to Slurm, in rounds: submit what is new, look at all jobs with one question, send what is to be
stopped. While Slurm is away everything is kept and done when it is back.
"""

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

import structlog

from heliostat.config import Settings
from heliostat.engines.contract import Capabilities, Report
from heliostat.engines.folders import JobFolder
from heliostat.engines.inside import Inside
from heliostat.engines.slurm import reserving
from heliostat.engines.slurm.arrays import MAX_ARRAY_SIZE, Chunk, chunks_of
from heliostat.engines.slurm.associations import SlurmAccounts
from heliostat.engines.slurm.commands import Commands, SlurmRefused
from heliostat.engines.slurm.contained import check_container
from heliostat.engines.slurm.dynamic_steps import Recomposer
from heliostat.engines.slurm.entrances import Entrances
from heliostat.engines.slurm.following import Readiness
from heliostat.engines.slurm.limits import extend, with_limit
from heliostat.engines.slurm.live import LiveUse
from heliostat.engines.slurm.lookout import Lookout
from heliostat.engines.slurm.machines import node_of
from heliostat.engines.slurm.others import Others
from heliostat.engines.slurm.partitions import Picture, in_our_words
from heliostat.engines.slurm.requests import check_class, check_request
from heliostat.engines.slurm.reservations import as_ours, names_of
from heliostat.engines.slurm.rounds import Rounds
from heliostat.engines.slurm.submission import former_log
from heliostat.engines.slurm.usage import OwedUsage
from heliostat.engines.slurm.ways import way_to_slurm
from heliostat.errors import Conflict, EngineUnavailable
from heliostat.models import (
    Attempt,
    AttemptId,
    AttemptUsage,
    Cause,
    ForeignJob,
    Job,
    JobId,
    Node,
    Observation,
    Reading,
    Recomposition,
    Reservation,
    Waiting,
)

log = structlog.get_logger()
_LOOK_SECONDS = 1.0
_NODES_SECONDS = 5.0
_OTHERS_SECONDS = 5.0
_SUSPENDED = "suspended with Slurm's own tools; `scontrol resume` lets it go on"
_ASKED_AT_ONCE = 500  # jobs whose use is asked for
_AT_ONCE = 50  # submissions before we look again at what runs and is to stop
_GATHERING_SECONDS = 0.1  # after a submission, in which others arrive that can go together
_AT_THE_SAME_TIME = 4


class SlurmEngine:
    """Fulfils `Engine` and most of what `engines/contract.py` lets an engine do besides."""

    name = "slurm"
    capabilities = Capabilities(
        queues_itself=True, limits_arrays=True, knows_parents=True, contains=True, equips=True
    )

    def __init__(self, settings: Settings, commands: Commands | None = None, look: float = _LOOK_SECONDS) -> None:
        self._settings, self._look_seconds = settings, look
        self._lookout = Lookout(look)
        self._commands = commands or way_to_slurm(settings)
        facts = f"{socket.gethostname()}:{settings.home.path}"
        self.instance = hashlib.sha256(facts.encode()).hexdigest()[:12]
        self.accounts = SlurmAccounts(self._commands)
        self._rounds = Rounds(settings, self._commands, self.instance, self.accounts)
        self._entrances = Entrances(settings, self._commands, self._rounds, self.instance)
        self._owed = OwedUsage(settings.home.attempts)
        self._live = LiveUse(self._commands, settings.slurm_live_seconds, self._rounds.running)
        self._turn = threading.Lock()  # held by whoever talks to Slurm
        self._wake = threading.Condition()
        self._arrived: dict[AttemptId, Attempt] = {}
        self._wishes: list[tuple[AttemptId, float, str]] = []  # to stop: whom, kill at, signal
        self._orphans: set[AttemptId] = set()
        self._nodes: list[Node] = []
        self._next_submission = self._next_nodes = 0.0
        self._others = Others(self._commands)
        self._knows_ours = False  # until then anything might be
        self._next_others = 0.0
        self._max_array_size = MAX_ARRAY_SIZE
        self._picture = Picture()
        self._away: str | None = None  # why Slurm does not answer
        self._failed = False  # the last round did not come to its end
        self._report: Report = lambda observations: None
        self._nodes_changed: Callable[[], None] = lambda: None
        self._closed = False
        self._commands.wait_for_earlier_submissions()
        self._try(self._look_at_nodes)
        self.accounts.look_if_old()
        self._recomposer = Recomposer(
            settings.home.attempts, self._commands, settings.slurm_node_command, self._look_at_nodes_now
        )
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

    def recompose(self, node: str, gpus: Mapping[str, int], *, dry_run: bool = False) -> Recomposition:
        terms = self._rounds.site.terms
        theirs = {terms.gpu_type(kind): count for kind, count in gpus.items()}
        return self._recomposer.recompose(node, theirs, dry_run=dry_run)

    def recomposition(self, node: str) -> Recomposition | None:
        return self._recomposer.of(node)

    def check(self, job: Job, data_class: int) -> None:
        """While nothing is known of Slurm there is nothing against it: Slurm says so when it gets the job."""
        terms = self._rounds.site.terms
        check_request(job, data_class, self._picture, terms)
        check_class(job, terms, self.accounts)
        check_container(job)

    def reserve(self, wish: Reservation, unix_users: Collection[str]) -> None:
        with self._turn:
            reserving.create(self._commands, wish, unix_users)
            self._look_at_nodes()

    def cancel_reservation(self, reservation: Reservation) -> None:
        with self._turn:
            reserving.delete(self._commands, reservation)
            self._look_at_nodes()

    def others_reservations(self, ours: Collection[Reservation]) -> list[Reservation]:
        names = {name for one in ours for name in names_of(one)}
        return [as_ours(one) for one in self._picture.reservations or () if one.name not in names]

    def has_reservation(self, reservation: Reservation) -> bool:
        known = self._picture.reservations
        return known is None or any(one.name in names_of(reservation) for one in known)

    def start(self, attempts: Sequence[Attempt]) -> None:
        new = {attempt.id: attempt for attempt in attempts if self._is_new(attempt)}
        if new:  # else Slurm is asked again when it is time
            with self._wake:
                self._arrived.update(new)
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
        self._owed.owe([attempt_id for attempt_id in attempt_ids if self._rounds.forget(attempt_id)])

    def forget_all_but(self, attempt_ids: Collection[AttemptId]) -> None:
        """Whatever else of ours is in Slurm was cancelled or held while we could not tell it."""
        with self._wake:
            self._orphans |= set(self._rounds.traces.ids()) - set(attempt_ids)
            self._knows_ours = True
            self._wake.notify()

    def inside(self, attempt: Attempt, command: Sequence[str], terminal: str = "") -> Inside:
        return self._entrances.inside(attempt, command, terminal)

    def relay(self, attempt: Attempt) -> Inside:
        return self._entrances.relay(attempt)

    def extend(self, attempt: Attempt, limit_seconds: int) -> None:
        with self._turn:
            arrived = self._arrived.get(attempt.id)
            if arrived is not None:
                self._arrived[attempt.id] = with_limit(arrived, limit_seconds)
                return
            extend(self._rounds, self._commands, attempt, limit_seconds)

    def waiting(self, attempt_id: AttemptId) -> Waiting | None:
        handed = self._rounds.handed.get(attempt_id)
        if self._away and (handed is None or handed.number is None):
            return Waiting(f"waits to be handed to Slurm: {self._away}", "away")
        if handed is None or handed.number is None:
            return None
        if handed.is_suspended:
            return Waiting(_SUSPENDED, "suspended")
        return self._rounds.line.waiting(handed.number)

    def others(self) -> Sequence[ForeignJob]:
        return self._others.found

    def log_path(self, job_id: JobId, attempt: int, stream: str) -> Path:
        folder = JobFolder.of(self._settings.home.jobs, job_id)
        former = Path(former_log(folder, attempt, stream))
        return former if former.exists() else Path(folder.log(attempt, stream))

    def log_order(self, job_id: JobId, attempt: int) -> list[tuple[str, int]]:
        return []

    def sample_nodes(self) -> dict[str, Reading]:
        try:
            return self._commands.loads()
        except (EngineUnavailable, SlurmRefused):
            return {}  # it is said elsewhere that Slurm is away

    def sample_attempts(self) -> dict[AttemptId, Reading]:
        return self._live.readings()

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
        self._recomposer.close()
        if self._thread.is_alive():
            self._thread.join()

    def _is_new(self, attempt: Attempt) -> bool:
        if attempt.id in self._arrived or attempt.id in self._rounds.handed or attempt.id in self._rounds.over:
            return False
        return self._rounds.traces.find(attempt.id) is None

    def _run(self) -> None:
        while not self._closed:
            self._rest()
            if self._closed:
                return
            with self._turn:
                self._try(self._round)
                told = self._rounds.told()
            if told:
                self._report(told)
            if self._failed:
                time.sleep(self._look_seconds)

    def _rest(self) -> None:
        """Until it is time to look, or something is to be done: what arrives alone at once, many together."""
        while self._lookout.left > 0 and self._is_idle():
            self._lookout.glance()
        with self._wake:
            if self._has_ready and (left := self._next_submission - time.monotonic()) > 0:
                self._wake.wait_for(lambda: self._wishes or self._closed, left)

    def _is_idle(self) -> bool:
        """Nothing is to be done, and nothing came for a moment."""
        with self._wake:
            if self._wishes or self._closed or self._has_ready:
                return False
            return not self._wake.wait(self._lookout.glance_left)

    @property
    def _has_ready(self) -> bool:
        """Something can be handed over at once. Who waits for a parent that Slurm does not have yet can wait."""
        arrived = list(self._arrived.values())
        around = self._rounds.around(arrived)
        return any(around.readiness(attempt) is not Readiness.NOT_YET for attempt in arrived)

    def _round(self) -> None:
        is_time = bool(self._wishes) or self._lookout.left == 0
        self._stop_wished()
        self._submit_arrived()
        if is_time:
            self._lookout.begin(self._rounds.handed.values())
            self._look_at_all()
            self._lookout.end()
            self._rounds.send_signals()
        if orphans := set(self._orphans):
            self._rounds.cancel_orphans(orphans)
            self._owed.owe(orphans)
            self._orphans -= orphans
        if time.monotonic() >= self._next_nodes:
            self._look_at_nodes()
        self.accounts.look_if_old()

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
            if handed := self._rounds.handed.get(attempt_id) or self._rounds.successor_of(attempt_id):
                handed.ask_to_stop(Cause.STOPPED, signal, kill_at)
            with self._wake:
                self._wishes.remove(wish)

    def _submit_arrived(self) -> None:
        """Several at the same time: Slurm answers each after a while, and the order need not be exact."""
        arrived = list(self._arrived.values())
        ready = self._rounds.ready_of(arrived)
        self._no_longer_new(
            *(one for one in arrived if one.id in self._rounds.over or one.id in self._rounds.handed)
        )
        found = chunks_of(ready, self._max_array_size, self._rounds.handed)
        chunks = list(islice(found, _AT_ONCE))
        if not chunks:
            return
        self._next_submission = time.monotonic() + _GATHERING_SECONDS
        pool = ThreadPoolExecutor(_AT_THE_SAME_TIME)
        try:
            for done in [pool.submit(self._submit, chunk) for chunk in chunks]:
                done.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _submit(self, chunk: Chunk) -> None:
        if self._closed:
            return
        if len(chunk.elements) == 1 and not chunk.more:
            self._rounds.submit(chunk.first)
        else:
            self._rounds.submit_array(chunk)
        self._no_longer_new(*chunk.attempts)

    def _no_longer_new(self, *attempts: Attempt) -> None:
        with self._wake:
            for attempt in attempts:
                self._arrived.pop(attempt.id, None)

    def _look_at_all(self) -> None:
        """At the jobs of others too, but not as often; while we have none, only then."""
        is_time = self._knows_ours and time.monotonic() >= self._next_others
        self._look(others=is_time)
        if is_time:
            self._next_others = time.monotonic() + _OTHERS_SECONDS
            ours = {handed.number for handed in self._rounds.handed.values() if handed.number is not None}
            self._others.look(self._rounds.jobs, ours)

    def _look(self, *, others: bool = False) -> None:
        types = {device.uuid: device.type for node in self._nodes for device in node.devices}
        self._rounds.look(types, others=others)

    def _set_node(self, node: str, *values: str) -> None:
        with self._turn:
            try:
                self._commands.update_node(node, *values)
            except SlurmRefused as error:
                raise Conflict(f"Slurm refuses it: {error}.", "See `scontrol show node`.") from error
            self._look_at_nodes()

    def _look_at_nodes_now(self) -> None:
        with self._turn:
            self._look_at_nodes()

    def _look_at_nodes(self) -> None:
        self._look_at_partitions()
        nodes = in_our_words(
            [node_of(node) for node in self._picture.nodes], self._picture, self._rounds.site.terms
        )
        self._next_nodes = time.monotonic() + _NODES_SECONDS
        if nodes != self._nodes:
            self._nodes = nodes
            self._nodes_changed()

    def _look_at_partitions(self) -> None:
        """What Slurm has, as the checks of requests and the words of submissions need it."""
        self._picture = self._commands.picture()
        self._max_array_size = self._commands.max_array_size() or MAX_ARRAY_SIZE
        self._rounds.reservations = [one.name for one in self._picture.reservations or ()]
        site = self._rounds.site
        terms = site.terms.seeing(self._picture.gpu_types)
        self._rounds.site = replace(site, terms=terms, longest_seconds=self._picture.longest_seconds)
