"""Attempts that run on this machine: their wrappers are watched by pidfd, their ends cleaned up and reported."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from signal import SIGCONT, Signals

from heliostat.config import Settings
from heliostat.engines.contract import Report
from heliostat.engines.folders import JobFolder
from heliostat.engines.local.cgroups import CgroupTree, Group
from heliostat.engines.local.containers import signal_container
from heliostat.engines.local.devices import Devices
from heliostat.engines.local.endings import Running, ended, ended_before_boot, holders, ran_out_of_memory, utc_now
from heliostat.engines.local.log_order import LogOrder
from heliostat.engines.local.processes import boot_time, open_pidfd, send_signal
from heliostat.engines.local.trace import Ending, Traces
from heliostat.engines.local.ungrouped import led, marked
from heliostat.engines.local.watch import Watch
from heliostat.models import Attempt, AttemptId, Cause, Ended, Observation, Started
from heliostat.server_log import get_logger

log = get_logger()

# The tool that holds a container tells the exit code and goes; its last process is gone a moment later by itself.
_ENDS_BY_ITSELF, _MOMENT_SECONDS = 8, 0.0002
_NEVER_BEGAN = "it could not be started: its supervising shell was killed"


class Supervision:
    """What runs, from the moment its wrapper was started until its end is reported."""

    def __init__(self, settings: Settings, instance: str, traces: Traces, groups: CgroupTree) -> None:
        self._jobs, self._instance, self._traces, self._groups = settings.home.jobs, instance, traces, groups
        self.lock = threading.Lock()
        self.running: dict[AttemptId, Running] = {}
        self.report: Report = lambda observations: None
        self.devices = Devices(settings.server.simulate_gpus, instance, self._holders)
        self.watch = Watch()
        self.reapers = ThreadPoolExecutor(4, "reaper")
        self._cleanup = Cleanup(traces, instance, self.devices)
        self._log_order = LogOrder()

    def begin(self, attempt: Attempt) -> None:
        """Just before its wrapper is started: from here on nothing of its log is missed."""
        self._log_order.begin(attempt.id, JobFolder.of(self._jobs, attempt.job.id), attempt.job.attempt)

    def never_began(self, attempt_id: AttemptId) -> None:
        self._log_order.end(attempt_id)

    def take_up(self, attempt: Attempt) -> Observation:
        """One that an earlier server has started, or was about to."""
        if attempt.id in self.running:
            return Started(attempt.id, utc_now())
        was_before_boot = attempt.job.started_at is not None and attempt.job.started_at < boot_time()
        if self._traces.disown(attempt.id) and not was_before_boot:
            if unused := self._groups.find(attempt.id):
                unused.remove()
            return Ended(attempt.id, utc_now(), Cause.NOT_STARTED)
        claim = self._traces.claim(attempt.id)
        if claim is None:
            return ended_before_boot(attempt, self._traces.ending(attempt.id))
        group = self._groups.find(claim.group) or marked(self._instance, attempt.id)
        running = Running(attempt, claim, led(group, claim), is_contained=attempt.job.spec.wants_container)
        self.begin(attempt)
        if not self._watch_earlier(running):
            if end := self._cleanup.usual_end(running):
                self._log_order.end(attempt.id)
                return end
            with self.lock:
                self.running[attempt.id] = running
            self.reapers.submit(self._end, running)
        return Started(attempt.id, self._traces.claimed_at(attempt.id) or utc_now())

    def _watch_earlier(self, running: Running) -> bool:
        """The wrapper of an earlier server. False when it has ended."""
        pidfd = open_pidfd(running.claim.pid, running.claim.start_time or 0)
        if pidfd is None:
            return False
        with self.lock:
            self.running[running.attempt.id] = running
        self.watch.on_exit(pidfd, lambda: self._wrapper_ended(running))
        return True

    def keep_watching(self, running: Running) -> None:
        """A wrapper that we started. It runs, so nothing may say that it could not be started: not even that no
        descriptor is left for it."""
        try:
            self.watch.on_exit(os.pidfd_open(running.claim.pid), lambda: self._wrapper_ended(running))
        except OSError as error:
            log.warning("attempt_not_watched", attempt=running.attempt.id, error=repr(error))
            self.watch.call_after(1.0, lambda: self.keep_watching(running))

    def _wrapper_ended(self, running: Running) -> None:
        try:
            end = self._cleanup.usual_end(running)
        except OSError:
            end = None  # no descriptor left, say: the reaper tries until it knows
        if end:
            self._report_end(end)
        else:
            self.reapers.submit(self._end, running)

    def _end(self, running: Running) -> None:
        try:
            end = self._cleanup.end(running)
        except (ProcessesLeft, OSError) as error:
            log.warning("attempt_not_finished", attempt=running.attempt.id, error=repr(error))
            self.watch.call_after(5.0, lambda: self._wrapper_ended(running))
        else:
            self._report_end(end)

    def _report_end(self, end: Ended) -> None:
        self._log_order.end(end.attempt_id)
        with self.lock:
            self.running.pop(end.attempt_id, None)
        self.report([end])

    def _holders(self) -> dict[str, list[AttemptId]]:
        with self.lock:
            return holders(self.running.values())

    def terminate(self, running: Running, signal: Signals) -> None:
        """The payload enters its group a moment after the wrapper has started: the signal waits for it."""
        has_entered = bool(running.group.pids())
        if running.is_contained:
            signal_container(running.group, signal)
        else:
            running.group.signal(signal)
        if not has_entered and self.running.get(running.attempt.id) is running:
            self.watch.call_after(0.02, lambda: self.terminate(running, signal))

    def kill(self, attempt_id: AttemptId) -> None:
        if running := self.running.get(attempt_id):
            self.reapers.submit(self._kill, running)

    def _kill(self, running: Running) -> None:
        """The payload enters its group a moment after the wrapper has started, and is killed then.

        A job of the server's own user can stop its process group, to which the wrapper belongs: continue it.
        """
        if not running.group.pids() and self.running.get(running.attempt.id) is running:
            self.watch.call_after(0.02, lambda: self.kill(running.attempt.id))
        running.group.kill()
        if (claim := self._traces.claim(running.attempt.id)) and claim.start_time:
            send_signal(claim.pid, claim.start_time, SIGCONT)


class ProcessesLeft(Exception):
    """Not even KILL has ended them yet, as when they hang in the kernel."""


class Cleanup:
    """Nothing of an attempt is left when its end is told: its devices and its place go to somebody else."""

    def __init__(self, traces: Traces, instance: str, devices: Devices) -> None:
        self._traces, self._instance, self._devices = traces, instance, devices

    def usual_end(self, running: Running) -> Ended | None:
        """With an exit status and nothing left. Only a group that is empty can be removed."""
        if running.attempt.devices and self._devices.are_real:
            return None  # the driver must be asked, which may take its time
        ending = self._traces.ending(running.attempt.id)
        if ending.exit_code is None or not self._removed(running, ending):
            return None
        return ended(running, ending)

    def end(self, running: Running) -> Ended:
        """Whatever it takes, and however long. ProcessesLeft when it is not over yet."""
        ending = self._traces.ending(running.attempt.id)
        if ending.exit_code is None and self._traces.disown(running.attempt.id):
            running.group.remove()
            return Ended(running.attempt.id, utc_now(), Cause.NOT_STARTED, detail=_NEVER_BEGAN)
        self._kill_what_is_left(running, ending)
        if ending.exit_code is None and not self._left_by_wrapper(running).kill():
            raise ProcessesLeft(running.attempt.id)  # the wrapper was killed, and its watch of the limit lives
        self._give_back_devices(running)
        return ended(running, ending)

    def _kill_what_is_left(self, running: Running, ending: Ending) -> None:
        for tries in range(100):
            if self._removed(running, ending):
                return
            if tries < _ENDS_BY_ITSELF and running.is_contained and ending.exit_code is not None:
                time.sleep(_MOMENT_SECONDS)
                continue
            if not running.group.kill():
                raise ProcessesLeft(running.attempt.id, running.group.pids()[:20])
            # The kernel may call a group busy for a moment after its last process, most often after a container.
            time.sleep(min(0.01, 0.0005 * 2**tries))

    def _removed(self, running: Running, ending: Ending) -> bool:
        if ending.exit_code != 0 and ran_out_of_memory(running, ending):  # the count goes with the group
            running.out_of_memory = True
        return running.group.remove()

    def _left_by_wrapper(self, running: Running) -> Group:
        """The process that enforces its limit: in its session, not in the cgroup. The claim on disk says
        when the wrapper was born: by now its pid may belong to another process."""
        claim = self._traces.claim(running.attempt.id) or running.claim
        return led(marked(self._instance, running.attempt.id), claim)

    def _give_back_devices(self, running: Running) -> None:
        running.is_over = True
        devices = running.attempt.devices
        if devices and self._devices.are_real and not self._devices.wait_until_left(running.attempt.id, devices):
            log.warning("devices_not_empty", attempt=running.attempt.id, devices=devices)
