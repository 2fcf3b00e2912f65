"""Attempts under way on this machine: watched by their wrappers' pidfds, cleared up after, and their ends told."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from signal import Signals

import structlog

from heliostat.config import Settings
from heliostat.engines.contract import Report
from heliostat.engines.folders import JobFolder
from heliostat.engines.local.cgroups import CgroupTree, Group, Limits
from heliostat.engines.local.devices import Devices
from heliostat.engines.local.endings import (
    Running,
    ended,
    ended_before_boot,
    holders,
    ran_out_of_memory,
    utc_now,
)
from heliostat.engines.local.insiders import signal_container
from heliostat.engines.local.log_order import LogOrder
from heliostat.engines.local.processes import boot_time, start_time
from heliostat.engines.local.trace import Ending, Traces
from heliostat.engines.local.ungrouped import UngroupedProcesses, UngroupedTree
from heliostat.engines.local.watch import Watch
from heliostat.models import Attempt, AttemptId, Cause, Ended, Observation, Started

log = structlog.get_logger()
# The tool that holds a container tells the exit code and goes; its last process is gone a moment later by itself.
_ENDS_BY_ITSELF, _MOMENT_SECONDS = 8, 0.0002


class ProcessesLeft(Exception):
    """Not even KILL has ended them yet, as when they hang in the kernel."""


class Supervision:
    """What runs, from the moment its wrapper was started until its end is told."""

    def __init__(self, settings: Settings, instance: str, traces: Traces, groups: CgroupTree) -> None:
        self._settings, self._instance, self._traces, self._groups = settings, instance, traces, groups
        self.lock = threading.Lock()
        self.running: dict[AttemptId, Running] = {}
        self.report: Report = lambda observations: None
        self.devices = Devices(settings.simulate_gpus, instance, self._holders)
        self.watch = Watch()
        self.reapers = ThreadPoolExecutor(4, "reaper")
        self._log_order = LogOrder()

    def begin(self, attempt: Attempt) -> None:
        """Just before its wrapper is started: from here on nothing of its log is missed."""
        folder = JobFolder.of(self._settings.home.jobs, attempt.job.id)
        self._log_order.begin(attempt.id, partial(folder.log, attempt.job.attempt))

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
        group = self._groups.find(attempt.id) or self._marked(attempt)
        running = Running(attempt, claim, group, is_contained=attempt.job.spec.wants_container)
        self.begin(attempt)
        if not self._begin_watching(running):
            if end := self._usual_end(running):
                self._log_order.end(attempt.id)
                return end
            self.running[attempt.id] = running
            self.reapers.submit(self._end, running)
        return Started(attempt.id, utc_now())

    def keep_watching(self, running: Running) -> None:
        """It runs, so nothing may say that it could not be started: not even that no descriptor is left for it."""
        try:
            if not self._begin_watching(running):
                self._wrapper_ended(running)
        except OSError as error:
            log.warning("attempt_not_watched", attempt=running.attempt.id, error=repr(error))
            self.watch.call_after(1.0, lambda: self.keep_watching(running))

    def _begin_watching(self, running: Running) -> bool:
        """False when it is over already."""
        claim = running.claim
        if isinstance(running.group, UngroupedProcesses):
            running.group.led_by(claim)
        try:
            pidfd = os.pidfd_open(claim.pid)
        except ProcessLookupError:
            return False
        if claim.start_time is not None and start_time(claim.pid) != claim.start_time:
            os.close(pidfd)
            return False
        self.running[running.attempt.id] = running
        self.watch.on_exit(pidfd, lambda: self._wrapper_ended(running))
        return True

    def _wrapper_ended(self, running: Running) -> None:
        try:
            end = self._usual_end(running)
        except OSError:
            end = None  # no descriptor left, say: the reaper tries until it knows
        if end:
            self._tell_end(end)
        else:
            self.reapers.submit(self._end, running)

    def _usual_end(self, running: Running) -> Ended | None:
        """With an exit status and nothing left. Only a group that is empty can be removed."""
        if running.attempt.devices and self.devices.are_real:
            return None  # the driver must be asked, which may take its time
        ending = self._traces.ending(running.attempt.id)
        if ending.exit_code is None or not self._removed(running, ending):
            return None
        return ended(running, ending)

    def _end(self, running: Running) -> None:
        try:
            end = self._clear(running)
            self._give_back_devices(running)
        except (ProcessesLeft, OSError) as error:
            log.warning("attempt_not_finished", attempt=running.attempt.id, error=repr(error))
            self.watch.call_after(5.0, lambda: self._wrapper_ended(running))
        else:
            self._tell_end(end)

    def _clear(self, running: Running) -> Ended:
        """Nothing of it may be left when its end is told: its devices go to somebody else."""
        ending = self._traces.ending(running.attempt.id)
        for tries in range(100):
            if self._removed(running, ending):
                break
            if tries < _ENDS_BY_ITSELF and running.is_contained and ending.exit_code is not None:
                time.sleep(_MOMENT_SECONDS)
                continue
            if not running.group.kill():
                raise ProcessesLeft(running.attempt.id, running.group.pids()[:20])
            # The kernel may call a group busy for a moment after its last process, most often after a container.
            time.sleep(min(0.01, 0.0005 * 2**tries))
        if ending.exit_code is None and not self._marked(running.attempt).kill():
            raise ProcessesLeft(running.attempt.id)  # the wrapper was killed, and its watch of the limit lives
        return ended(running, ending)

    def _give_back_devices(self, running: Running) -> None:
        running.is_over = True
        devices = running.attempt.devices
        if devices and self.devices.are_real and not self.devices.wait_until_left(running.attempt.id, devices):
            log.warning("devices_not_empty", attempt=running.attempt.id, devices=devices)

    def _holders(self) -> dict[str, list[AttemptId]]:
        with self.lock:
            return holders(self.running.values())

    def _removed(self, running: Running, ending: Ending) -> bool:
        if ending.exit_code != 0 and ran_out_of_memory(running, ending):  # the count goes with the group
            running.out_of_memory = True
        return running.group.remove()

    def _tell_end(self, end: Ended) -> None:
        self._log_order.end(end.attempt_id)
        with self.lock:
            self.running.pop(end.attempt_id, None)
        self.report([end])

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
            self.reapers.submit(running.group.kill)

    def _marked(self, attempt: Attempt) -> Group:
        """What carries its mark: all there can be left when its cgroup is gone, or outside of it."""
        return UngroupedTree(self._instance).create(attempt.id, Limits())
