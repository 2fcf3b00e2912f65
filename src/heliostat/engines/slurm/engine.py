"""Hands attempts to Slurm, which decides when and where they run, and reports what becomes of them.

What is wanted goes to the `SyncLoop`, the one thread that talks to Slurm; what is asked is answered from what was
heard last. The engine makes the parts, which each have one task, and passes calls on to them.
"""

import contextlib
import hashlib
import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from heliostat.config import Settings
from heliostat.engines.contract import Capabilities, Report
from heliostat.engines.inside import Inside
from heliostat.engines.job_files import JobFiles, LogPart, read_log_file
from heliostat.engines.relay.relays import RelayEndpoint, Relays
from heliostat.engines.slurm import reservations
from heliostat.engines.slurm.accounts.sacctmgr import SlurmAccounts
from heliostat.engines.slurm.accounts.sync import SlurmAccountSync
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.cluster_state import ClusterState, check_class, check_request
from heliostat.engines.slurm.containers import check_container
from heliostat.engines.slurm.exec import Exec
from heliostat.engines.slurm.foreign_jobs import ForeignJobs
from heliostat.engines.slurm.journal import Journal
from heliostat.engines.slurm.mapping import name_mapping
from heliostat.engines.slurm.observe import Observer
from heliostat.engines.slurm.probe import probe
from heliostat.engines.slurm.recompose import Recomposer
from heliostat.engines.slurm.script import Site
from heliostat.engines.slurm.submit import Submitter, former_log
from heliostat.engines.slurm.sync import Parts, SyncLoop
from heliostat.engines.slurm.timing import SlurmTiming
from heliostat.engines.slurm.tracked_job import TrackedJobs
from heliostat.engines.slurm.usage import LiveUse, OwedUsage, read_live, read_loads, running_jobs, settled_usage
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


class SlurmEngine:
    """Fulfils `Engine` and most of what `engines/contract.py` lets an engine do besides."""

    name = "slurm"
    capabilities = Capabilities(
        queues_itself=True, limits_arrays=True, contains=True, equips=True, measures_attempts=False
    )

    def __init__(
        self, settings: Settings, client: SlurmClient | None = None, timing: SlurmTiming = _TIMING
    ) -> None:
        self._settings = settings
        client = self._client = client or SlurmClient.of(settings.home)
        facts = f"{socket.gethostname()}:{settings.home.path}"
        self.instance = hashlib.sha256(facts.encode()).hexdigest()[:12]
        self.accounts = SlurmAccounts(client)
        self.account_sync = SlurmAccountSync(self.accounts, self.instance)
        self._files = files = JobFiles(settings.home.jobs)
        self.log_folder, self.has_files, self.work_folder = files.log_folder, files.has_files, files.work_folder
        self.list_job_files, self.open_job_file = files.list_job_files, files.open_job_file
        self.read_job_file = files.read_job_file
        self._cluster = ClusterState(client, Site(self.instance, os.geteuid() == 0, name_mapping(settings.slurm)))
        self._tracked = TrackedJobs(Journal(settings.home.attempts))
        self._submitter = Submitter(settings, client, self._tracked, self._cluster, self.accounts)
        self._observer = Observer(settings, client, self._tracked, self._cluster, self._submitter)
        self._foreign = ForeignJobs(client)
        self._owed = OwedUsage(settings.home.attempts)
        self._live = LiveUse(
            partial(read_live, client), settings.slurm.sample_seconds, partial(running_jobs, self._tracked)
        )
        self._exec = Exec(settings, client, self._tracked, self.instance)
        self._relays = Relays(self._exec.relay)
        self._sync = SyncLoop(
            Parts(
                self._tracked,
                self._submitter,
                self._observer,
                self._cluster,
                self._foreign,
                self.accounts,
                self._owed,
            ),
            timing,
        )
        self._sync.begin()
        self._recomposer = Recomposer(
            settings.home.attempts, client, settings.slurm.node_command, self._look_at_nodes
        )

    def on_observation(self, report: Report) -> None:
        self._sync.report = report

    def on_nodes_changed(self, changed: Callable[[], None]) -> None:
        self._cluster.on_change = changed

    def nodes(self) -> list[Node]:
        """As of a few seconds ago: whoever asks never waits for Slurm."""
        return list(self._cluster.nodes)

    def drain(self, node: str, reason: str) -> None:
        self._set_node(node, "State=DRAIN", f"Reason={reason}")

    def resume(self, node: str) -> None:
        self._set_node(node, "State=RESUME")

    def recompose(self, node: str, gpus: Mapping[str, int], *, dry_run: bool = False) -> Recomposition:
        names = self._cluster.site.names
        theirs = {names.gpu_type(kind): count for kind, count in gpus.items()}
        return self._recomposer.recompose(node, theirs, dry_run=dry_run)

    def recomposition(self, node: str) -> Recomposition | None:
        return self._recomposer.of(node)

    def check(self, job: Job, data_class: int) -> None:
        """While nothing is known of Slurm there is nothing against it: Slurm says so when it gets the job."""
        names = self._cluster.site.names
        check_request(job, data_class, self._cluster.snapshot, names)
        check_class(job, names, self.accounts)
        check_container(job)

    def probe_nodes(self, users: Mapping[str, tuple[int, int]]) -> None:
        with contextlib.suppress(SlurmRefused):  # which is found again when it is examined
            probe(self._settings, users)

    def reserve(self, wish: Reservation, unix_users: Collection[str]) -> None:
        with self._sync.turn:
            reservations.create(self._client, wish, unix_users)
            self._cluster.look()

    def cancel_reservation(self, reservation: Reservation) -> None:
        with self._sync.turn:
            reservations.delete(self._client, reservation)
            self._cluster.look()

    def others_reservations(self, ours: Collection[Reservation]) -> list[Reservation]:
        names = {name for one in ours for name in reservations.names_of(one)}
        known = self._cluster.snapshot.reservations or ()
        return [reservations.as_ours(one) for one in known if one.name not in names]

    def has_reservation(self, reservation: Reservation) -> bool:
        known = self._cluster.snapshot.reservations
        return known is None or any(one.name in reservations.names_of(reservation) for one in known)

    def start(self, attempts: Sequence[Attempt]) -> None:
        self._sync.start(attempts)

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        return self._sync.observe(attempts)

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        self._sync.stop(attempt, grace_seconds, signal)

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        self._owed.owe([attempt_id for attempt_id in attempt_ids if self._tracked.forget(attempt_id)])

    def forget_all_but(self, attempt_ids: Collection[AttemptId]) -> None:
        self._sync.forget_all_but(attempt_ids)

    def exec(self, attempt: Attempt, command: Sequence[str], terminal: str = "") -> Inside:
        return self._exec.inside(attempt, command, terminal)

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
        with self._sync.turn:
            if not self._sync.lengthen(attempt, limit_seconds):
                self._submitter.extend(attempt, limit_seconds)

    def waiting(self, attempt_id: AttemptId) -> Waiting | None:
        tracked = self._tracked.jobs.get(attempt_id)
        if self._sync.away and (tracked is None or tracked.number is None):
            return Waiting(f"waits to be handed to Slurm: {self._sync.away}", "away")
        if tracked is None or tracked.number is None:
            reason = self._sync.backoff.reason(attempt_id)
            return None if reason is None else Waiting(f"waits to be handed to Slurm: {reason}", "away")
        if tracked.is_suspended:
            return Waiting(_SUSPENDED, "suspended")
        return self._observer.order.waiting(tracked.number)

    def others(self) -> Sequence[ForeignJob]:
        return self._foreign.found

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
            nodes = read_loads(self._client)
        except (EngineUnavailable, SlurmRefused):
            nodes = {}  # it is said elsewhere that Slurm is away
        return Readings(self._live.readings(), nodes)

    def used(self) -> dict[AttemptId, AttemptUsage | None]:
        return settled_usage(self._owed, self._client)

    def noted(self, attempt_ids: Iterable[AttemptId]) -> None:
        self._owed.remove(attempt_ids)

    def close(self) -> None:
        self._recomposer.close()
        self._sync.end()

    def _set_node(self, node: str, *values: str) -> None:
        with self._sync.turn:
            try:
                self._client.update_node(node, *values)
            except SlurmRefused as error:
                raise Conflict(f"Slurm refuses it: {error}.", "See `scontrol show node`.") from error
            self._cluster.look()

    def _look_at_nodes(self) -> None:
        with self._sync.turn:
            self._cluster.look()
