"""Hands attempts to Slurm, which decides when and where they run, and reports what becomes of them.

What is wanted goes into a `Conversation`, the one thread that talks to Slurm; what is asked is answered from what
was heard last.
"""

import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from heliostat.config import Settings
from heliostat.engines.contract import Capabilities, Report
from heliostat.engines.inside import Inside
from heliostat.engines.job_files import JobFiles, LogPart, read_log_file
from heliostat.engines.relay.relays import RelayEndpoint, Relays
from heliostat.engines.slurm import reserving
from heliostat.engines.slurm.account_sync import SlurmAccountSync
from heliostat.engines.slurm.associations import SlurmAccounts
from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.contained import check_container
from heliostat.engines.slurm.conversation import Conversation, SlurmTiming, Subjects
from heliostat.engines.slurm.dynamic_steps import Recomposer
from heliostat.engines.slurm.entrances import Entrances
from heliostat.engines.slurm.limits import extend
from heliostat.engines.slurm.live import LiveUse
from heliostat.engines.slurm.others import Others
from heliostat.engines.slurm.probe import probe
from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.engines.slurm.requests import check_class, check_request
from heliostat.engines.slurm.reservations import as_ours, names_of
from heliostat.engines.slurm.rounds import Rounds
from heliostat.engines.slurm.sight import Sight
from heliostat.engines.slurm.submission import former_log
from heliostat.engines.slurm.usage import OwedUsage
from heliostat.errors import Conflict, EngineUnavailable
from heliostat.models import (
    Attempt,
    AttemptId,
    AttemptUsage,
    ForeignJob,
    Job,
    JobId,
    Node,
    Observation,
    Readings,
    Recomposition,
    Reservation,
    Waiting,
)

_TIMING = SlurmTiming()
_SUSPENDED = "suspended with Slurm's own tools; `scontrol resume` lets it go on"
_ASKED_AT_ONCE = 500  # jobs whose use is asked for


class SlurmEngine:
    """Fulfils `Engine` and most of what `engines/contract.py` lets an engine do besides."""

    name = "slurm"
    capabilities = Capabilities(
        queues_itself=True,
        limits_arrays=True,
        knows_parents=True,
        contains=True,
        equips=True,
        measures_attempts=False,
    )

    def __init__(
        self, settings: Settings, commands: Commands | None = None, timing: SlurmTiming = _TIMING
    ) -> None:
        self._settings = settings
        self._commands = commands or Commands.of(settings.home)
        facts = f"{socket.gethostname()}:{settings.home.path}"
        self.instance = hashlib.sha256(facts.encode()).hexdigest()[:12]
        self.accounts = SlurmAccounts(self._commands)
        self.account_sync = SlurmAccountSync(self.accounts, self.instance)
        self._rounds = Rounds(settings, self._commands, self.instance, self.accounts)
        self._entrances = Entrances(settings, self._commands, self._rounds, self.instance)
        self._relays = Relays(self._entrances.relay)
        self._files = files = JobFiles(settings.home.jobs)
        self.log_folder, self.has_files, self.work_folder = files.log_folder, files.has_files, files.work_folder
        self.list_job_files, self.open_job_file = files.list_job_files, files.open_job_file
        self.read_job_file = files.read_job_file
        self._owed = OwedUsage(settings.home.attempts)
        self._live = LiveUse(self._commands, settings.slurm_live_seconds, self._rounds.running)
        self._sight = Sight(self._commands, self._rounds)
        self._others = Others(self._commands)
        subjects = Subjects(self._rounds, self._sight, self._others, self.accounts, self._owed)
        self._talk = Conversation(subjects, timing)
        self._talk.begin()
        self._recomposer = Recomposer(
            settings.home.attempts, self._commands, settings.slurm_node_command, self._look_at_nodes
        )

    def on_observation(self, report: Report) -> None:
        self._talk.report = report

    def on_nodes_changed(self, changed: Callable[[], None]) -> None:
        self._sight.on_change = changed

    def nodes(self) -> list[Node]:
        """As of a few seconds ago: whoever asks never waits for Slurm."""
        return list(self._sight.nodes)

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
        check_request(job, data_class, self._sight.picture, terms)
        check_class(job, terms, self.accounts)
        check_container(job)

    def probe_nodes(self, users: Mapping[str, tuple[int, int]]) -> None:
        with contextlib.suppress(SlurmRefused):  # which is found again when it is examined
            probe(self._settings, users)

    def reserve(self, wish: Reservation, unix_users: Collection[str]) -> None:
        with self._talk.turn:
            reserving.create(self._commands, wish, unix_users)
            self._sight.look()

    def cancel_reservation(self, reservation: Reservation) -> None:
        with self._talk.turn:
            reserving.delete(self._commands, reservation)
            self._sight.look()

    def others_reservations(self, ours: Collection[Reservation]) -> list[Reservation]:
        names = {name for one in ours for name in names_of(one)}
        return [as_ours(one) for one in self._sight.picture.reservations or () if one.name not in names]

    def has_reservation(self, reservation: Reservation) -> bool:
        known = self._sight.picture.reservations
        return known is None or any(one.name in names_of(reservation) for one in known)

    def start(self, attempts: Sequence[Attempt]) -> None:
        self._talk.start(attempts)

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        return self._talk.observe(attempts)

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        self._talk.stop(attempt, grace_seconds, signal)

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        self._owed.owe([attempt_id for attempt_id in attempt_ids if self._rounds.forget(attempt_id)])

    def forget_all_but(self, attempt_ids: Collection[AttemptId]) -> None:
        self._talk.forget_all_but(attempt_ids)

    def exec(self, attempt: Attempt, command: Sequence[str], terminal: str = "") -> Inside:
        return self._entrances.inside(attempt, command, terminal)

    def endpoint(self, attempt: Attempt, port: int) -> RelayEndpoint:
        return RelayEndpoint(self._relays, attempt, port)

    def session_port(self, attempt: Attempt) -> int | None:
        """One that Slurm has put back into its queue still says it as the attempt it was submitted as."""
        return self._files.session_port(attempt.job.id, range(attempt.job.attempt, 0, -1))

    def attach_endpoints(self) -> None:
        self._relays.attach()

    async def detach_endpoints(self) -> None:
        await self._relays.close()

    def extend(self, attempt: Attempt, limit_seconds: int) -> None:
        with self._talk.turn:
            if not self._talk.lengthen(attempt, limit_seconds):
                extend(self._rounds, self._commands, attempt, limit_seconds)

    def waiting(self, attempt_id: AttemptId) -> Waiting | None:
        handed = self._rounds.handed.get(attempt_id)
        if self._talk.away and (handed is None or handed.number is None):
            return Waiting(f"waits to be handed to Slurm: {self._talk.away}", "away")
        if handed is None or handed.number is None:
            reason = self._talk.patience.reason(attempt_id)
            return None if reason is None else Waiting(f"waits to be handed to Slurm: {reason}", "away")
        if handed.is_suspended:
            return Waiting(_SUSPENDED, "suspended")
        return self._rounds.line.waiting(handed.number)

    def others(self) -> Sequence[ForeignJob]:
        return self._others.found

    def read_log(self, job_id: JobId, attempt: int, stream: str, offset: int, limit: int) -> LogPart:
        folder = self._files.folder(job_id)
        former = former_log(folder, attempt, stream)
        path = former if os.path.exists(former) else folder.log(attempt, stream)
        return read_log_file(path, offset, limit)

    def log_order(self, job_id: JobId, attempt: int) -> list[tuple[str, int]]:
        return []

    def sample(self) -> Readings:
        """Nodes without their devices, and some attempts, as of a while ago."""
        try:
            nodes = self._commands.loads()
        except (EngineUnavailable, SlurmRefused):
            nodes = {}  # it is said elsewhere that Slurm is away
        return Readings(self._live.readings(), nodes)

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
        self._recomposer.close()
        self._talk.end()

    def _set_node(self, node: str, *values: str) -> None:
        with self._talk.turn:
            try:
                self._commands.update_node(node, *values)
            except SlurmRefused as error:
                raise Conflict(f"Slurm refuses it: {error}.", "See `scontrol show node`.") from error
            self._sight.look()

    def _look_at_nodes(self) -> None:
        with self._talk.turn:
            self._sight.look()
