"""Supervision of running attempts: watches their wrappers, cleans up after them and reports their ends."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from signal import SIGCONT, Signals

from heliostat.config import Settings
from heliostat.engines.contract import ObservationCallback
from heliostat.engines.job_folders import JobFolder
from heliostat.engines.local.cgroup_fallback import make_marked_group, with_wrapper_session
from heliostat.engines.local.cgroups import Cgroup, CgroupTree
from heliostat.engines.local.claim_files import ClaimFiles, WrapperExit
from heliostat.engines.local.containers import signal_container
from heliostat.engines.local.exit_status import (
    RunningAttempt,
    attempts_by_device,
    make_attempt_ended,
    make_ended_before_boot,
    ran_out_of_memory,
    utc_now,
)
from heliostat.engines.local.gpu_monitor import GpuMonitor
from heliostat.engines.local.log_limit import LogLimit
from heliostat.engines.local.log_order import LogOrderRecorder
from heliostat.engines.local.process_watch import ProcessWatch
from heliostat.engines.local.processes import boot_time, open_pidfd, send_signal
from heliostat.models import Attempt, AttemptEnded, AttemptId, AttemptStarted, EndCause, Observation
from heliostat.models.quantities import parse_memory
from heliostat.server_log import get_logger

log = get_logger()

# The last process of a container ends a moment after the container tool has exited: wait before killing it.
_EXIT_WAITS, _EXIT_WAIT_SECONDS = 8, 0.0002
_LOG_LIMIT_SECONDS = 2.0  # between checks
_NOT_STARTED = "it could not be started: its wrapper process was killed"


class AttemptSupervisor:
    """The running attempts, from the start of the wrapper until the end is reported."""

    def __init__(self, settings: Settings, instance: str, claims: ClaimFiles, groups: CgroupTree) -> None:
        self._jobs, self._instance, self._claims, self._groups = settings.home.jobs, instance, claims, groups
        self.lock = threading.Lock()
        self.running: dict[AttemptId, RunningAttempt] = {}
        self.report: ObservationCallback = lambda observations: None
        self.devices = GpuMonitor(settings.server.simulate_gpus, instance, self._holders)
        self.process_watch = ProcessWatch()
        self.reapers = ThreadPoolExecutor(4, "reaper")
        self._cleanup = AttemptCleanup(claims, instance, self.devices)
        self._log_order = LogOrderRecorder()
        self._log_limit = LogLimit(settings.home.jobs, parse_memory(settings.storage.log_max_size) * 2**20)
        self._limit_logs_later()

    def start_log_recording(self, attempt: Attempt) -> None:
        """Call this before the wrapper is started, so that no log output is missed."""
        self._log_order.start_recording(
            attempt.id, JobFolder.for_job(self._jobs, attempt.job.id), attempt.job.attempt
        )

    def cancel_log_recording(self, attempt_id: AttemptId) -> None:
        self._log_order.stop_recording(attempt_id)

    def _stop_log_recording(self, attempt: Attempt) -> None:
        self._log_order.stop_recording(attempt.id)
        if self._log_limit.list_exceeding([attempt]):
            self.reapers.submit(self._log_limit.apply, [attempt])

    def _limit_running_logs(self) -> None:
        with self.lock:
            attempts = [running.attempt for running in self.running.values()]
        self._log_limit.apply(attempts)
        self._limit_logs_later()

    def _limit_logs_later(self) -> None:
        self.process_watch.call_after(_LOG_LIMIT_SECONDS, lambda: self.reapers.submit(self._limit_running_logs))

    def adopt(self, attempt: Attempt) -> list[Observation]:
        """Take over an attempt that an earlier server process has started, or was about to start."""
        if attempt.id in self.running:
            return [AttemptStarted(attempt.id, utc_now())]
        was_before_boot = attempt.job.started_at is not None and attempt.job.started_at < boot_time()
        if self._claims.disown(attempt.id) and not was_before_boot:
            if unused := self._groups.find(attempt.id):
                unused.remove()
            return [AttemptEnded(attempt.id, utc_now(), EndCause.NOT_STARTED)]
        claim = self._claims.read_claim(attempt.id)
        if claim is None:
            return [make_ended_before_boot(attempt, self._claims.read_exit(attempt.id))]
        started = AttemptStarted(attempt.id, self._claims.read_claim_time(attempt.id) or utc_now())
        group = self._groups.find(claim.cgroup_name) or make_marked_group(self._instance, attempt.id)
        running = RunningAttempt(
            attempt, claim, with_wrapper_session(group, claim), is_in_container=attempt.job.spec.uses_container
        )
        self.start_log_recording(attempt)
        if not self._watch_earlier(running):
            if end := self._cleanup.try_quick_end(running):
                self._stop_log_recording(attempt)
                return [replace(started, at=min(started.at, end.at)), end]
            with self.lock:
                self.running[attempt.id] = running
            self.reapers.submit(self._end, running)
        return [started]

    def _watch_earlier(self, running: RunningAttempt) -> bool:
        """Watch the wrapper of an earlier server process. False: it has ended."""
        pidfd = open_pidfd(running.claim.pid, running.claim.start_time or 0)
        if pidfd is None:
            return False
        with self.lock:
            self.running[running.attempt.id] = running
        self.process_watch.call_on_exit(pidfd, lambda: self._wrapper_ended(running))
        return True

    def watch_wrapper(self, running: RunningAttempt) -> None:
        """Watch a wrapper that this process started. It runs, so an error here (no free descriptor) must not
        report the attempt as not started: retry instead."""
        try:
            self.process_watch.call_on_exit(os.pidfd_open(running.claim.pid), lambda: self._wrapper_ended(running))
        except OSError as error:
            log.warning("attempt_not_watched", attempt=running.attempt.id, error=repr(error))
            self.process_watch.call_after(1.0, lambda: self.watch_wrapper(running))

    def _wrapper_ended(self, running: RunningAttempt) -> None:
        try:
            end = self._cleanup.try_quick_end(running)
        except OSError:
            end = None  # for example no free descriptor: the reaper retries
        if end:
            self._report_end(end)
        else:
            self.reapers.submit(self._end, running)

    def _end(self, running: RunningAttempt) -> None:
        try:
            end = self._cleanup.force_end(running)
        except (ProcessesRemaining, OSError) as error:
            log.warning("attempt_not_finished", attempt=running.attempt.id, error=repr(error))
            self.process_watch.call_after(5.0, lambda: self._wrapper_ended(running))
        else:
            self._report_end(end)

    def _report_end(self, end: AttemptEnded) -> None:
        with self.lock:
            running = self.running.pop(end.attempt_id, None)
        if running:
            self._stop_log_recording(running.attempt)
        self.report([end])

    def _holders(self) -> dict[str, list[AttemptId]]:
        with self.lock:
            return attempts_by_device(self.running.values())

    def signal_attempt(self, running: RunningAttempt, signal: Signals) -> None:
        """The payload enters its cgroup a moment after the start of the wrapper: until then, repeat the signal."""
        has_entered = bool(running.group.pids())
        if running.is_in_container:
            signal_container(running.group, signal)
        else:
            running.group.signal(signal)
        if not has_entered and self.running.get(running.attempt.id) is running:
            self.process_watch.call_after(0.02, lambda: self.signal_attempt(running, signal))

    def kill_attempt(self, attempt_id: AttemptId) -> None:
        if running := self.running.get(attempt_id):
            self.reapers.submit(self._kill, running)

    def _kill(self, running: RunningAttempt) -> None:
        """The payload enters its cgroup a moment after the start of the wrapper: until then, repeat the kill.

        A job of the server's own user can stop (SIGSTOP) its process group with the wrapper: continue it.
        """
        if not running.group.pids() and self.running.get(running.attempt.id) is running:
            self.process_watch.call_after(0.02, lambda: self.kill_attempt(running.attempt.id))
        running.group.kill()
        if (claim := self._claims.read_claim(running.attempt.id)) and claim.start_time:
            send_signal(claim.pid, claim.start_time, SIGCONT)


class ProcessesRemaining(Exception):
    """Processes survived KILL, for example because they hang in the kernel."""


class AttemptCleanup:
    """Removes all processes of an attempt before its end is reported, since other jobs then get its resources."""

    def __init__(self, claims: ClaimFiles, instance: str, devices: GpuMonitor) -> None:
        self._claims, self._instance, self._devices = claims, instance, devices

    def try_quick_end(self, running: RunningAttempt) -> AttemptEnded | None:
        """The end, if an exit status was written and no process is left: only an empty cgroup can be removed."""
        if running.attempt.devices and self._devices.are_real:
            return None  # the driver must be queried, which may take a while
        wrapper_exit = self._claims.read_exit(running.attempt.id)
        if wrapper_exit.exit_code is None or not self._remove_group(running, wrapper_exit):
            return None
        return make_attempt_ended(running, wrapper_exit)

    def force_end(self, running: RunningAttempt) -> AttemptEnded:
        """Kill what is left; may take a while. Raises ProcessesRemaining."""
        wrapper_exit = self._claims.read_exit(running.attempt.id)
        if wrapper_exit.exit_code is None and self._claims.disown(running.attempt.id):
            running.group.remove()
            return AttemptEnded(running.attempt.id, utc_now(), EndCause.NOT_STARTED, detail=_NOT_STARTED)
        self._devices.update_errors()
        self._kill_remaining(running, wrapper_exit)
        # If the wrapper was killed, its time-limit process is still alive.
        if wrapper_exit.exit_code is None and not self._left_by_wrapper(running).kill():
            raise ProcessesRemaining(running.attempt.id)
        self._release_devices(running)
        end = make_attempt_ended(running, wrapper_exit)
        started_at = self._claims.read_claim_time(end.attempt_id) or running.attempt.job.started_at or end.at
        return self._devices.explain_end(end, running.attempt.devices, started_at)

    def _kill_remaining(self, running: RunningAttempt, wrapper_exit: WrapperExit) -> None:
        for tries in range(100):
            if self._remove_group(running, wrapper_exit):
                return
            if tries < _EXIT_WAITS and running.is_in_container and wrapper_exit.exit_code is not None:
                time.sleep(_EXIT_WAIT_SECONDS)
                continue
            if not running.group.kill():
                raise ProcessesRemaining(running.attempt.id, running.group.pids()[:20])
            # The kernel may report a cgroup as busy for a moment after its last process, mostly after a container.
            time.sleep(min(0.01, 0.0005 * 2**tries))

    def _remove_group(self, running: RunningAttempt, wrapper_exit: WrapperExit) -> bool:
        # Read the count of OOM kills first: it is removed with the cgroup.
        if wrapper_exit.exit_code != 0 and ran_out_of_memory(running, wrapper_exit):
            running.out_of_memory = True
        return running.group.remove()

    def _left_by_wrapper(self, running: RunningAttempt) -> Cgroup:
        """The process that enforces the time limit: it is in the wrapper's session, not in the cgroup. The claim
        on disk has the start time of the wrapper, since its pid may belong to another process by now."""
        claim = self._claims.read_claim(running.attempt.id) or running.claim
        return with_wrapper_session(make_marked_group(self._instance, running.attempt.id), claim)

    def _release_devices(self, running: RunningAttempt) -> None:
        running.has_exited = True
        devices = running.attempt.devices
        if (
            devices
            and self._devices.are_real
            and not self._devices.wait_until_released(running.attempt.id, devices)
        ):
            log.warning("devices_not_empty", attempt=running.attempt.id, devices=devices)
