"""`SlurmEngine`: submits attempts to Slurm, which schedules them, and reports their states.

Changes go to the `SyncLoop`, the one thread that runs Slurm's commands; queries are answered from its last poll.
The engine creates the components and delegates calls to them.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

from heliostat.config import Settings
from heliostat.engines.code_layout import CodeLayout
from heliostat.engines.contract import Capabilities, LeftoverAttempt, ObservationCallback
from heliostat.engines.exec import ExecCommand
from heliostat.engines.job_file_reader import JobFiles, LogChunk, read_log_file
from heliostat.engines.relay.pool import RelayEndpoint, RelayPool
from heliostat.engines.slurm import reservations
from heliostat.engines.slurm.accounts.sacctmgr import SlurmAccounts
from heliostat.engines.slurm.accounts.sync import SlurmAccountSync
from heliostat.engines.slurm.batch_script import SubmissionContext, instance_id
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.cluster_state import ClusterState, check_priority_class, check_request
from heliostat.engines.slurm.containers import check_container
from heliostat.engines.slurm.exec import ExecBuilder
from heliostat.engines.slurm.foreign_jobs import ForeignJobs
from heliostat.engines.slurm.journal import SubmissionJournal
from heliostat.engines.slurm.leftovers import find_leftovers
from heliostat.engines.slurm.mapping import make_name_mapping
from heliostat.engines.slurm.node_probe import probe_partitions
from heliostat.engines.slurm.observer import Observer
from heliostat.engines.slurm.polling import SlurmTiming
from heliostat.engines.slurm.recomposer import Recomposer
from heliostat.engines.slurm.submitter import Submitter, previous_log_path
from heliostat.engines.slurm.sync_loop import SyncLoop, SyncParts
from heliostat.engines.slurm.tracked_jobs import TrackedJobs
from heliostat.engines.slurm.usage import (
    LiveUsageSampler,
    PendingUsageFolder,
    collect_settled_usage,
    find_running_jobs,
    read_live_usage,
    read_node_loads,
)
from heliostat.errors import Conflict, EngineUnavailable
from heliostat.models import (
    Attempt,
    AttemptId,
    AttemptUsage,
    EngineOutage,
    ForeignJob,
    Job,
    JobId,
    Node,
    Observation,
    Recomposition,
    Reservation,
    SampleBatch,
    WaitReason,
)

_TIMING = SlurmTiming()
_SUSPENDED = "suspended with Slurm's own tools; to continue it: `scontrol resume`"


class SlurmEngine:
    """Implements `Engine` and most of the optional interfaces in `engines/contract.py`."""

    name = "slurm"
    capabilities = Capabilities(
        has_own_queue=True,
        enforces_array_limit=True,
        runs_containers=True,
        provides_environments=True,
        samples_attempts=False,
    )

    def __init__(
        self, settings: Settings, client: SlurmClient | None = None, timing: SlurmTiming = _TIMING
    ) -> None:
        self._settings = settings
        client = self._client = client or SlurmClient.for_home(settings.home)
        self.instance = instance_id(settings.home)
        self.accounts = SlurmAccounts(client)
        self.account_sync = SlurmAccountSync(self.accounts, self.instance)
        self._files = files = JobFiles(settings.home.jobs)
        self.log_folder, self.has_job_files, self.work_folder = (
            files.log_folder,
            files.has_job_files,
            files.work_folder,
        )
        self.list_job_files, self.open_job_file = files.list_job_files, files.open_job_file
        self.read_job_file = files.read_job_file
        self._cluster = ClusterState(
            client, SubmissionContext(self.instance, os.geteuid() == 0, make_name_mapping(settings.slurm))
        )
        self._tracked = TrackedJobs(SubmissionJournal(settings.home.attempts))
        self._submitter = Submitter(settings, client, self._tracked, self._cluster, self.accounts)
        self._observer = Observer(settings, client, self._tracked, self._cluster, self._submitter)
        self._foreign = ForeignJobs(client)
        self._pending_usage = PendingUsageFolder(settings.home.attempts)
        self._live = LiveUsageSampler(
            partial(read_live_usage, client),
            settings.slurm.sample_seconds,
            partial(find_running_jobs, self._tracked),
        )
        self._exec = ExecBuilder(settings, client, self._tracked, self.instance)
        self._relays = RelayPool(self._exec.build_relay)
        self._sync = SyncLoop(
            SyncParts(
                self._tracked,
                self._submitter,
                self._observer,
                self._cluster,
                self._foreign,
                self.accounts,
                self._pending_usage,
                CodeLayout(settings.home),
            ),
            timing,
        )
        self.accounts.on_change = self._sync.retry_submissions
        self._sync.start_thread()
        self._recomposer = Recomposer(
            settings.home.attempts, client, settings.slurm.node_command, self._refresh_nodes
        )

    def set_observation_callback(self, report: ObservationCallback) -> None:
        self._sync.report = report

    def set_nodes_changed_callback(self, changed: Callable[[], None]) -> None:
        self._cluster.on_change = changed

    def nodes(self) -> list[Node]:
        """From the last poll, a few seconds old: callers never wait for Slurm."""
        return list(self._cluster.nodes)

    def drain(self, node: str, reason: str) -> None:
        self._set_node(node, "State=DRAIN", f"Reason={reason}")

    def resume(self, node: str) -> None:
        self._set_node(node, "State=RESUME")

    def recompose(self, node: str, gpus: Mapping[str, int], *, dry_run: bool = False) -> Recomposition:
        names = self._cluster.submission_context.name_mapping
        theirs = {names.slurm_gpu_type(kind): count for kind, count in gpus.items()}
        return self._recomposer.recompose(node, theirs, dry_run=dry_run)

    def recomposition_status(self, node: str) -> Recomposition | None:
        return self._recomposer.find(node)

    def check_request(self, job: Job, data_class: int) -> None:
        """While Slurm's state is unknown, every request passes: Slurm checks it at submission."""
        names = self._cluster.submission_context.name_mapping
        check_request(job, data_class, self._cluster.snapshot, names)
        check_priority_class(job, names, self.accounts)
        check_container(job)

    def probe_nodes(self, users: Mapping[str, tuple[int, int]]) -> None:
        with contextlib.suppress(SlurmRefused):  # the checks of the installation report it
            probe_partitions(self._settings, users)

    def reserve(self, reservation: Reservation, unix_users: Collection[str]) -> None:
        with self._sync.slurm_lock:
            reservations.create_reservations(self._client, reservation, unix_users)
            self._cluster.refresh()

    def cancel_reservation(self, reservation: Reservation) -> None:
        with self._sync.slurm_lock:
            reservations.delete_reservations(self._client, reservation)
            self._cluster.refresh()

    def foreign_reservations(self, ours: Collection[Reservation]) -> list[Reservation]:
        names = {name for reservation in ours for name in reservations.slurm_reservation_names(reservation)}
        existing = self._cluster.snapshot.reservations or ()
        return [reservations.from_slurm_reservation(found) for found in existing if found.name not in names]

    def has_reservation(self, reservation: Reservation) -> bool:
        existing = self._cluster.snapshot.reservations
        names = reservations.slurm_reservation_names(reservation)
        return existing is None or any(found.name in names for found in existing)

    def start(self, attempts: Sequence[Attempt]) -> None:
        self._sync.start(attempts)

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        return self._sync.observe(attempts)

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        self._sync.stop(attempt, grace_seconds, signal)

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        self._pending_usage.add([attempt_id for attempt_id in attempt_ids if self._tracked.forget(attempt_id)])

    def forget_all_except(self, attempt_ids: Collection[AttemptId]) -> None:
        self._sync.forget_all_but(attempt_ids)

    def recorded_attempts(self) -> set[AttemptId]:
        return set(self._tracked.journal.attempt_ids())

    def find_leftovers(self, attempt_ids: Iterable[AttemptId]) -> list[LeftoverAttempt]:
        with self._sync.slurm_lock:
            return find_leftovers(self._tracked.journal, self._client, attempt_ids)

    def exec(self, attempt: Attempt, command: Sequence[str], terminal: str = "") -> ExecCommand:
        return self._exec.build_exec(attempt, command, terminal)

    def endpoint(self, attempt: Attempt, port: int) -> RelayEndpoint:
        return RelayEndpoint(self._relays, attempt, port)

    def session_port(self, attempt: Attempt) -> int | None:
        """A job that Slurm requeued still reports its port under the attempt it was submitted as."""
        return self._files.session_port(attempt.job.id, range(attempt.job.attempt, 0, -1))

    def attach_endpoints(self) -> None:
        self._relays.attach()

    async def detach_endpoints(self) -> None:
        await self._relays.close()

    def extend_time_limit(self, attempt: Attempt, limit_seconds: int) -> None:
        with self._sync.slurm_lock:
            if not self._sync.extend_unsubmitted(attempt, limit_seconds):
                self._submitter.extend(attempt, limit_seconds)

    def wait_reason(self, attempt_id: AttemptId) -> WaitReason | None:
        tracked = self._tracked.jobs.get(attempt_id)
        if self._sync.unavailable_reason and (tracked is None or tracked.slurm_job_id is None):
            return WaitReason(
                f"waits for submission to Slurm: {self._sync.unavailable_reason}", "engine_unavailable"
            )
        if tracked is None or tracked.slurm_job_id is None:
            reason = self._sync.backoff.reason(attempt_id)
            return (
                None
                if reason is None
                else WaitReason(f"waits for submission to Slurm: {reason}", "engine_unavailable")
            )
        if tracked.is_suspended:
            return WaitReason(_SUSPENDED, "suspended")
        return self._observer.queue_order.wait_reason(tracked.slurm_job_id)

    def outage(self) -> EngineOutage | None:
        reason = self._sync.unavailable_reason
        return None if reason is None else EngineOutage("Slurm", self._sync.answered_at, reason)

    def forecast_start(self, attempt: Attempt) -> datetime:
        return self._submitter.forecast_start(attempt)

    def foreign_jobs(self) -> Sequence[ForeignJob]:
        return self._foreign.jobs

    def read_log(self, job_id: JobId, attempt: int, stream: str, offset: int, limit: int) -> LogChunk:
        folder = self._files.job_folder(job_id)
        former = previous_log_path(folder, attempt, stream)
        path = former if os.path.exists(former) else folder.log_path(attempt, stream)
        return read_log_file(path, offset, limit)

    def read_log_order(self, job_id: JobId, attempt: int) -> list[tuple[str, int]]:
        return []

    def sample(self) -> SampleBatch:
        """Nodes without their devices, and some attempts; values may be some seconds old."""
        try:
            nodes = read_node_loads(self._client)
        except (EngineUnavailable, SlurmRefused):
            nodes = {}  # the sync loop reports that Slurm is unavailable
        return SampleBatch(self._live.readings(), nodes)

    def final_usage(self) -> dict[AttemptId, AttemptUsage | None]:
        return collect_settled_usage(self._pending_usage, self._client)

    def acknowledge_usage(self, attempt_ids: Iterable[AttemptId]) -> None:
        self._pending_usage.remove(attempt_ids)

    def close(self) -> None:
        self._recomposer.close()
        self._sync.stop_thread()

    def _set_node(self, node: str, *values: str) -> None:
        with self._sync.slurm_lock:
            try:
                self._client.update_node(node, *values)
            except SlurmRefused as error:
                raise Conflict(f"Slurm refused: {error}.", "See `scontrol show node`.") from error
            self._cluster.refresh()

    def _refresh_nodes(self) -> None:
        with self._sync.slurm_lock:
            self._cluster.refresh()
