"""Attempts that run on this machine: their wrappers are watched by pidfd, their ends cleaned up and reported."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from signal import SIGCONT, Signals

from heliostat.config import Settings
from heliostat.engines.contract import Report
from heliostat.engines.folders import JobFolder
from heliostat.engines.local.cgroups import CgroupTree
from heliostat.engines.local.clearing import Clearing, ProcessesLeft
from heliostat.engines.local.containers import signal_container
from heliostat.engines.local.devices import Devices
from heliostat.engines.local.endings import Running, ended_before_boot, holders, utc_now
from heliostat.engines.local.log_order import LogOrder
from heliostat.engines.local.processes import boot_time, open_pidfd, send_signal
from heliostat.engines.local.trace import Traces
from heliostat.engines.local.ungrouped import led, marked
from heliostat.engines.local.watch import Watch
from heliostat.models import Attempt, AttemptId, Cause, Ended, Observation, Started
from heliostat.server_log import get_logger

log = get_logger()


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
        self._clearing = Clearing(traces, instance, self.devices)
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
            if end := self._clearing.usual_end(running):
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
            end = self._clearing.usual_end(running)
        except OSError:
            end = None  # no descriptor left, say: the reaper tries until it knows
        if end:
            self._report_end(end)
        else:
            self.reapers.submit(self._end, running)

    def _end(self, running: Running) -> None:
        try:
            end = self._clearing.end(running)
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
