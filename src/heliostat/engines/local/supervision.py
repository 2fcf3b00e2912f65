"""Attempts under way on this machine: watched by their wrappers' pidfds, cleared up after, and their ends told."""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
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
from heliostat.engines.local.line import Line
from heliostat.engines.local.log_order import LogOrder
from heliostat.engines.local.machine import node_name
from heliostat.engines.local.processes import boot_time, start_time
from heliostat.engines.local.trace import Ending, Traces
from heliostat.engines.local.ungrouped import UngroupedProcesses, UngroupedTree
from heliostat.engines.local.watch import Watch
from heliostat.models import Attempt, AttemptId, Cause, Ended, Observation, Place, Started

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
        self.line = Line()  # those that stand behind others
        self.report: Report = lambda observations: None
        self.devices = Devices(settings.simulate_gpus, instance, self._holders)
        self.watch = Watch()
        self.reapers = ThreadPoolExecutor(4, "reaper")
        self._log_order = LogOrder()

    def begin(self, attempt: Attempt) -> None:
        """Just before its wrapper is started: from here on nothing of its log is missed."""
        folder = JobFolder.of(self._settings.home.jobs, attempt.job.id)
        self._log_order.begin(attempt.id, partial(folder.log, attempt.job.attempt))

    def take_up(self, attempt: Attempt) -> list[Observation]:
        """One that an earlier server has started, was about to, or had stand behind another."""
        if attempt.id in self.running:
            return [self.started(attempt.id)]
        if self.take_out(attempt.id):
            return [Ended(attempt.id, utc_now(), Cause.NOT_STARTED)]
        was_before_boot = attempt.job.started_at is not None and attempt.job.started_at < boot_time()
        if self._traces.disown(attempt.id) and not was_before_boot:
            self._clear_line_of(attempt)
            if unused := self._groups.find(attempt.id):
                unused.remove()
            return [Ended(attempt.id, utc_now(), Cause.NOT_STARTED)]
        seen = self._take_up_claimed(attempt)
        if not (attempt.job.handed_over and isinstance(seen, Ended)):
            return [seen]
        return [self.started(attempt.id, self._traces.claimed_at(attempt.id)), seen]

    def _take_up_claimed(self, attempt: Attempt) -> Started | Ended:
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
        return self.started(attempt.id, self._traces.claimed_at(attempt.id))

    def _clear_line_of(self, attempt: Attempt) -> None:
        """Its wrapper may stand in the line of an earlier server, and must not come when it is long forgotten."""
        if attempt.job.handed_over:
            self._marked(attempt).kill()

    def started(self, attempt_id: AttemptId, at: datetime | None = None) -> Started:
        return Started(attempt_id, at or utc_now(), (Place(node_name(self._settings.node_name), ()),))

    def ahead_of(self, attempt: Attempt) -> Running | None:
        """Behind whom it stands; None: there is nobody, or nobody any more. To be asked with the lock."""
        behind = attempt.behind or ""
        before = self.running.get(behind) or self.line.get(behind)
        last = self.line.last(before) if before else None
        return last if last is not None and last.baton is not None else None

    def take_out(self, attempt_id: AttemptId) -> bool:
        """Of the line, for good. False: it is not there, or it has just started."""
        with self.lock:
            running = self.line.get(attempt_id)
            if running is None or not self._traces.disown(attempt_id):
                return False
            self.line.give_up(running)
            return True

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
        with self.lock:
            if self.line.get(running.attempt.id) is None:
                self.running[running.attempt.id] = running
        self.watch.on_exit(pidfd, lambda: self._wrapper_ended(running))
        return True

    def _wrapper_ended(self, running: Running) -> None:
        begun = self._next_begins(running)
        if running.is_given_up:
            self._log_order.end(running.attempt.id)
            running.group.remove()
            self._tell(begun)
            return
        try:
            end = self._usual_end(running)
        except OSError:
            end = None  # no descriptor left, say: the reaper tries until it knows
        if end:
            self._tell_end(end, begun)
        else:
            self._tell(begun)
            self.reapers.submit(self._end, running)

    def _next_begins(self, gone: Running) -> list[Observation]:
        """Whose turn it is, now that this wrapper is gone. Its own may have come before we knew of that."""
        with self.lock:
            if gone.baton is not None:
                os.close(gone.baton)
                gone.baton = None
            if self.line.get(gone.attempt.id) and self._traces.disown(gone.attempt.id):
                self.line.give_up(gone)  # somebody has killed it
                return [Ended(gone.attempt.id, utc_now(), Cause.NOT_STARTED)]
            begun = [gone] if self.line.leave(gone) else []
            if after := self.line.next_after(gone):
                begun.append(after)
            self.running.update({one.attempt.id: one for one in begun})
        return [self.started(one.attempt.id) for one in begun]

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

    def _tell(self, seen: Sequence[Observation]) -> None:
        if seen:
            self.report(seen)

    def _tell_end(self, end: Ended, begun: Sequence[Observation] = ()) -> None:
        self._log_order.end(end.attempt_id)
        with self.lock:
            self.running.pop(end.attempt_id, None)
        self.report([*begun, end])

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
