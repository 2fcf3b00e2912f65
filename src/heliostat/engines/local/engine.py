"""Local engine: runs jobs on this machine. Running jobs do not need the server, and survive its restart."""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from signal import Signals

from heliostat.config import Settings
from heliostat.engines.code_layout import CodeLayout
from heliostat.engines.containers import container_enter_script
from heliostat.engines.contract import (
    Capabilities,
    GpuErrorCallback,
    GpuTestStep,
    LeftoverAttempt,
    ObservationCallback,
)
from heliostat.engines.exec import ExecCommand, render_exec_script, setpriv_argv, terminal_variables
from heliostat.engines.job_file_reader import JobFiles
from heliostat.engines.job_folders import AttemptRefused, JobFolder, require_run_as_user
from heliostat.engines.job_variables import CHECKPOINT_FILE, DEFAULT_PATH, RunAsUser
from heliostat.engines.local import containers, launch
from heliostat.engines.local.cgroup_fallback import (
    MARK_VARIABLE,
    FallbackCgroupTree,
    make_marked_group,
    with_wrapper_session,
)
from heliostat.engines.local.cgroups import Cgroup, CgroupsUnavailable, CgroupTree, find_cgroups
from heliostat.engines.local.claim_files import ClaimFiles
from heliostat.engines.local.containers import ContainerPaths
from heliostat.engines.local.endpoints import LocalEndpoint
from heliostat.engines.local.exit_status import RunningAttempt, describe_os_error, utc_now
from heliostat.engines.local.gpu_tests import GpuTests
from heliostat.engines.local.image_stores import RunningImageCleanup, start_store_cleanups
from heliostat.engines.local.leftover_description import make_leftover
from heliostat.engines.local.log_order import read_log_order
from heliostat.engines.local.node_description import make_local_node, resolve_node_name
from heliostat.engines.local.payload_script import PayloadContext, base_variables
from heliostat.engines.local.port_ownership import NotListening, PortOwnershipChecks, find_listening
from heliostat.engines.local.processes import belongs_to_user
from heliostat.engines.local.supervisor import AttemptSupervisor
from heliostat.engines.local.usage_sampler import UsageSampler
from heliostat.errors import Conflict
from heliostat.models import (
    Attempt,
    AttemptEnded,
    AttemptId,
    AttemptStarted,
    EndCause,
    JobId,
    Node,
    Observation,
    SampleBatch,
)
from heliostat.models.sessions import ListeningSocket
from heliostat.server_log import get_logger

log = get_logger()
_SWEEP_SECONDS = 600.0

# Enters the cgroup first, with the server's permissions; fails if the cgroup is gone.
_ENTER = 'for file in $1; do echo 0 >"$file" || exit 125; done; shift; exec "$@"'


class LocalEngine:
    """The engine for one machine."""

    name = "local"
    capabilities = Capabilities(runs_containers=True, provides_environments=True, runs_on_server_host=True)

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._node = resolve_node_name(settings.server.node_name)
        self._instance = containers.installation_id(settings.home)
        self._claims = ClaimFiles(settings.home.attempts)
        cgroups = find_cgroups(self._instance)
        self._no_cgroups = cgroups.reason if isinstance(cgroups, CgroupsUnavailable) else None
        self._groups: CgroupTree = (
            FallbackCgroupTree(self._instance) if isinstance(cgroups, CgroupsUnavailable) else cgroups
        )
        self._supervision = AttemptSupervisor(settings, self._instance, self._claims, self._groups)
        self._running, self._lock = self._supervision.running, self._supervision.lock
        self._watch, self._reapers = self._supervision.process_watch, self._supervision.reapers
        self._devices = self._supervision.devices
        self._gpu_tests = GpuTests(self._devices)
        self._queued: set[AttemptId] = set()
        self._forgotten: list[AttemptId] = []
        self._uncontained: set[AttemptId] = set()  # attempts started by this server without a container
        self._usage = UsageSampler(self._devices)
        self._report: ObservationCallback = lambda observations: None
        self._starters = ThreadPoolExecutor(4, "starter")
        self._code = CodeLayout(settings.home)
        self._port_checks = PortOwnershipChecks(self._listening)
        files = JobFiles(settings.home.jobs)
        self.read_log, self.log_folder, self.has_job_files = files.read_log, files.log_folder, files.has_job_files
        self.list_job_files, self.open_job_file = files.list_job_files, files.open_job_file
        self.read_job_file, self.work_folder = files.read_job_file, files.work_folder
        self._files, self._folder = files, files.job_folder

    def set_observation_callback(self, report: ObservationCallback) -> None:
        self._report = self._supervision.report = report

    def set_nodes_changed_callback(self, changed: Callable[[], None]) -> None:
        self._devices.on_change(changed)

    def set_gpu_error_callback(self, report: GpuErrorCallback) -> None:
        self._devices.set_error_callback(report)

    def test_gpu(self, card: str) -> list[GpuTestStep]:
        return self._gpu_tests.run(card)

    def nodes(self) -> list[Node]:
        notes = tuple(note for note in (self._devices.note, self._no_cgroups) if note)
        return [make_local_node(self._settings.server.node_name, self._devices.current_devices(), notes)]

    def start_image_cleanups(self) -> Iterator[RunningImageCleanup]:
        return start_store_cleanups(self._settings.home, self._settings.containers)

    def start(self, attempts: Sequence[Attempt]) -> None:
        """Starts in other threads, since a start may wait for a driver that hangs."""
        for attempt in attempts:
            with self._lock:
                if attempt.id in self._queued or attempt.id in self._running:
                    continue
                self._queued.add(attempt.id)
            if self._code.is_missing(attempt):
                self._code.lay_out([attempt], partial(self._submit_start, attempt))
            else:
                self._submit_start(attempt)

    def _submit_start(self, attempt: Attempt) -> None:
        self._starters.submit(self._start_queued, attempt)

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        waiting = set(self._queued)  # they will be started
        return [seen for one in attempts if one.id not in waiting for seen in self._supervision.adopt(one)]

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        with self._lock:
            running, was_queued = self._running.get(attempt.id), attempt.id in self._queued
            self._queued.discard(attempt.id)
        if was_queued:
            self._report([AttemptEnded(attempt.id, utc_now(), EndCause.STOPPED)])
        if running is None:
            return
        if signal not in running.stop_signals:
            running.stop_signals += (signal,)
            self._supervision.signal_attempt(running, Signals[f"SIG{signal}"])
        self._watch.call_after(grace_seconds, lambda: self._supervision.kill_attempt(attempt.id))

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        """Files are removed later in batches, since frequent removal is slow on many file systems."""
        with self._lock:
            if not self._forgotten:
                self._watch.call_after(_SWEEP_SECONDS, lambda: self._reapers.submit(self._sweep))
            forgotten = list(attempt_ids)
            self._forgotten += forgotten
            maybe_contained = [attempt_id for attempt_id in forgotten if attempt_id not in self._uncontained]
            self._uncontained.difference_update(forgotten)
        paths = ContainerPaths(self._settings, self._instance)
        ended = [attempt_id for attempt_id in maybe_contained if containers.has_container_files(paths, attempt_id)]
        if ended:
            self._reapers.submit(containers.remove_container_files, paths, ended)

    def forget_all_except(self, attempt_ids: Collection[AttemptId]) -> None:
        self._kill_ungrouped_except(attempt_ids)
        self._claims.remove_all_except(attempt_ids)
        claims = [self._claims.read_claim(attempt_id) for attempt_id in attempt_ids]
        for name in set(self._groups.names()) - {claim.cgroup_name for claim in claims if claim}:
            if (group := self._groups.find(name)) and group.kill():
                group.remove()
        paths = ContainerPaths(self._settings, self._instance)
        orphans = containers.find_orphaned_containers(paths, attempt_ids)
        self._reapers.submit(containers.remove_container_files, paths, orphans)

    def recorded_attempts(self) -> set[AttemptId]:
        return self._claims.attempt_ids()

    def find_leftovers(self, attempt_ids: Iterable[AttemptId]) -> list[LeftoverAttempt]:
        return [
            make_leftover(attempt_id, group, self._claims)
            for attempt_id, group in self._groups_of_claimed(attempt_ids)
        ]

    def _groups_of_claimed(self, attempt_ids: Iterable[AttemptId]) -> Iterator[tuple[AttemptId, Cgroup | None]]:
        """The attempts that a wrapper has claimed; without a group if that was before the last boot."""
        for attempt_id in attempt_ids:
            if claim := self._claims.read_claim(attempt_id):
                group = self._groups.find(claim.cgroup_name) or make_marked_group(self._instance, attempt_id)
                yield attempt_id, with_wrapper_session(group, claim)
            elif self._claims.read_exit(attempt_id).exit_code is not None:
                yield attempt_id, None

    def _kill_ungrouped_except(self, attempt_ids: Collection[AttemptId]) -> None:
        """Without cgroups, processes are found through the claims."""
        others = self._claims.attempt_ids().difference(attempt_ids) if self._no_cgroups else ()
        for _, group in self._groups_of_claimed(others):
            if group:
                group.kill()

    def exec(self, attempt: Attempt, command: Sequence[str], terminal: str = "") -> ExecCommand:
        with self._lock:
            running = self._running.get(attempt.id)
        if running is None or running.has_exited:
            raise Conflict(f"Job {attempt.job.id} is no longer running.", f"See `helio show {attempt.job.id}`.")
        run_as, folder = require_run_as_user(attempt.job.unix_user), self._folder(attempt.job.id)
        mark = f"{self._instance}-{attempt.id}"
        if running.is_in_container:
            paths = ContainerPaths(self._settings, self._instance)
            target = containers.find_exec_target(paths, attempt, running.group.pids(), terminal)
            return exec_in_cgroup(container_enter_script(attempt, target, command), run_as, running.group, mark)
        context = PayloadContext(
            workdir=attempt.job.spec.workdir or f"{folder.path}/work",
            script_path=None,
            installation_folder=str(self._settings.home.path),
            process_mark=mark,
            checkpoint_folder=folder.checkpoint_folder,
            device_memory_mib=self._devices.memory_mib(attempt.devices),
        )
        environment = (
            base_variables(attempt, run_as, context) | dict(attempt.job.spec.env) | terminal_variables(terminal)
        )
        return exec_in_cgroup(
            render_exec_script(environment, context.workdir, command), run_as, running.group, mark
        )

    def endpoint(self, attempt: Attempt, port: int) -> LocalEndpoint:
        return LocalEndpoint(self._port_checks, attempt, port)

    def session_port(self, attempt: Attempt) -> int | None:
        return self._files.session_port(attempt.job.id, [attempt.job.attempt])

    def attach_endpoints(self) -> None:
        """Local endpoints need no event loop of their own."""

    async def detach_endpoints(self) -> None:
        self._port_checks.close()

    def _listening(self, attempt: Attempt, port: int) -> ListeningSocket:
        with self._lock:
            running = self._running.get(attempt.id)
        if running is None or running.has_exited:
            raise Conflict(f"Job {attempt.job.id} is no longer running.", f"See `helio show {attempt.job.id}`.")
        try:
            return find_listening(port, self._pids(running))
        except NotListening as error:
            hint = "Start a server in the job first; it must listen on 127.0.0.1 or on all addresses."
            raise Conflict(f"Job {attempt.job.id}: {error}.", hint, code="not_listening") from error

    def _pids(self, running: RunningAttempt) -> list[int]:
        """Without cgroups, processes are found by a mark that any user can set: then check their user."""
        pids = running.group.pids()
        if self._no_cgroups is None:
            return pids
        run_as = require_run_as_user(running.attempt.job.unix_user)
        return [pid for pid in pids if belongs_to_user(pid, run_as.name, run_as.uid)]

    def extend_time_limit(self, attempt: Attempt, limit_seconds: int) -> None:
        if limit_seconds > (attempt.job.time_limit_seconds or 0):
            self._claims.extend_time_limit(attempt.id, limit_seconds)

    def read_log_order(self, job_id: JobId, attempt: int) -> list[tuple[str, int]]:
        return read_log_order(Path(self._folder(job_id).log_path(attempt, "order")))

    def checkpoint_times(self, attempts: Sequence[Attempt]) -> dict[AttemptId, datetime]:
        return read_checkpoint_times(self._settings.home.jobs, attempts, utc_now())

    def sample(self) -> SampleBatch:
        with self._lock:
            running = [attempt for attempt in self._running.values() if not attempt.has_exited]
        return self._usage.read(self._node, running)

    def close(self) -> None:
        self._code.close()
        self._starters.shutdown()
        self._watch.close()
        self._devices.close()
        self._reapers.shutdown(wait=False, cancel_futures=True)
        self._groups.remove()  # fails while jobs run, which is fine
        containers.remove_empty_folders(ContainerPaths(self._settings, self._instance))

    def _start_queued(self, attempt: Attempt) -> None:
        try:
            if not self._claims.is_claimed(attempt.id):
                self._start(attempt)
        except AttemptRefused as error:
            self._report([AttemptEnded(attempt.id, utc_now(), EndCause.REFUSED, detail=str(error))])
        except OSError as error:
            self._not_started(attempt, f"it could not be started: {describe_os_error(error)}")
        except Exception as error:
            log.exception("start_failed", attempt=attempt.id)
            self._not_started(attempt, f"it could not be started: {error}")
        finally:
            with self._lock:
                self._queued.discard(attempt.id)

    def _start(self, attempt: Attempt) -> None:
        run_as = require_run_as_user(attempt.job.unix_user)
        if busy := self._devices.unavailable_reason(attempt.devices):
            self._not_started(attempt, busy)
            return
        folder = self._folder(attempt.job.id)
        mark = f"{self._instance}-{attempt.id}"
        memory_mib = self._devices.memory_mib(attempt.devices)
        paths = ContainerPaths(self._settings, self._instance, self._devices.device_files(attempt.devices))
        payload = launch.prepare_attempt(
            attempt, run_as, folder, launch.LaunchContext(self._settings, mark, memory_mib, paths)
        )
        with contextlib.ExitStack() as unless_started:
            group = self._groups.create(attempt.id, launch.make_cgroup_limits(attempt, self._settings.queue))
            unless_started.callback(group.remove)
            if payload.container_commands:
                containers.make_cgroups_readable(group.enter_files)
            self._supervision.start_log_recording(attempt)
            unless_started.callback(self._supervision.cancel_log_recording, attempt.id)
            with self._lock:  # `stop` cancels the start before this point, and stops the running attempt after it
                if attempt.id not in self._queued:
                    return
                claim = launch.start_wrapper(payload, folder, self._claims.path(attempt.id), group)
                unless_started.pop_all()
                running = RunningAttempt(
                    attempt,
                    claim,
                    with_wrapper_session(group, claim),
                    is_in_container=bool(payload.container_commands),
                )
                running.started_monotonic = time.monotonic()
                self._running[attempt.id] = running
                self._queued.discard(attempt.id)
                if not payload.container_commands and not payload.context.tool_variables:
                    self._uncontained.add(attempt.id)
        self._report([AttemptStarted(attempt.id, utc_now())])
        self._supervision.watch_wrapper(running)

    def _sweep(self) -> None:
        with self._lock:
            forgotten, self._forgotten = self._forgotten, []
        self._claims.remove(forgotten)

    def _not_started(self, attempt: Attempt, detail: str) -> None:
        self._report([AttemptEnded(attempt.id, utc_now(), EndCause.NOT_STARTED, detail=detail)])


def read_checkpoint_times(jobs: Path, attempts: Iterable[Attempt], now: datetime) -> dict[AttemptId, datetime]:
    """The last checkpoints since the start of the attempts, which jobs report by touching a file. The files belong
    to the users and are not trusted: a time in the future counts as now."""
    times: dict[AttemptId, datetime] = {}
    for attempt in attempts:
        folder = JobFolder.for_job(jobs, attempt.job.id)
        saved_at = _modification_time(f"{folder.checkpoint_folder}/{CHECKPOINT_FILE}")
        started_at = attempt.job.started_at
        if saved_at is not None and started_at is not None and saved_at >= started_at:
            times[attempt.id] = min(saved_at, now)
    return times


def _modification_time(path: str) -> datetime | None:
    """Of a regular file. A link could reveal the time of a file that its user may not read."""
    try:
        status = os.lstat(path)
        return datetime.fromtimestamp(status.st_mtime, UTC) if stat.S_ISREG(status.st_mode) else None
    except (OSError, OverflowError, ValueError):
        return None


def exec_in_cgroup(script: str, run_as: RunAsUser, group: Cgroup, mark: str) -> ExecCommand:
    """The script is passed on a descriptor: it appears neither on disk nor on a command line. Raises OSError."""
    descriptor = os.memfd_create("inside")
    os.write(descriptor, script.encode("utf-8", "surrogateescape"))
    program = (*setpriv_argv(run_as), "/bin/sh", f"/proc/self/fd/{descriptor}")
    return ExecCommand(
        argv=("/bin/sh", "-c", _ENTER, "inside", " ".join(group.enter_files), *program),
        environment={"PATH": DEFAULT_PATH, MARK_VARIABLE: mark},
        inherited_descriptors=(descriptor,),
        close=lambda: os.close(descriptor),
        terminal_owner_uid=run_as.uid,
    )
