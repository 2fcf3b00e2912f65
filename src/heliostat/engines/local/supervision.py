"""Attempts under way on this machine: from the word to a wrapper until they are cleared up and their ends told."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from signal import SIGCONT, Signals

from heliostat.config import Settings
from heliostat.engines.contract import Report
from heliostat.engines.folders import JobFolder
from heliostat.engines.local.cgroups import CgroupTree
from heliostat.engines.local.clearing import Clearing, ProcessesLeft
from heliostat.engines.local.containers import open_groups
from heliostat.engines.local.devices import Devices
from heliostat.engines.local.endings import (
    Running,
    ended,
    ended_before_boot,
    holders,
    utc_now,
)
from heliostat.engines.local.insiders import signal_container
from heliostat.engines.local.log_order import LogOrder
from heliostat.engines.local.machine import node_name
from heliostat.engines.local.processes import boot_time, open_pidfd, send_signal
from heliostat.engines.local.rooms import SHORT_SECONDS, Guest, Room, Rooms
from heliostat.engines.local.trace import Claim, Ending, Traces, ending_of
from heliostat.engines.local.ungrouped import led, marked
from heliostat.engines.local.watch import NO_HURRY, Watch
from heliostat.engines.local.wrappers import Order, Wrapper, Wrappers, wrapper_argv
from heliostat.models import Attempt, AttemptId, Cause, Ended, Observation, Place, Started
from heliostat.server_log import get_logger

log = get_logger()
_MANY = 4  # that run longer, one after the other, than the watch rests
_FEW = 8  # that may be over before others are recorded and told to stand behind them
_FEW_IN_ALL = 40  # of all lines together: with many places each line is short


class NotFree(Exception):
    """Whoever is in its place is not over, and nobody can stand behind it any more."""


class Supervision:
    """What runs, from the moment its wrapper is told until its end is told."""

    def __init__(self, settings: Settings, instance: str, traces: Traces, groups: CgroupTree) -> None:
        self._settings, self._instance, self._traces, self._groups = settings, instance, traces, groups
        self._jobs, self._node = settings.home.jobs, node_name(settings.node_name)
        self.lock = threading.Lock()
        self.running: dict[AttemptId, Running] = {}
        self.lined_up: dict[AttemptId, Running] = {}  # those that stand behind others
        self.runs_low = False  # the wrapper that was heard last
        self.report: Report = lambda observations: None
        self.devices = Devices(settings.simulate_gpus, instance, self._holders)
        self.watch = Watch()
        self.reapers = ThreadPoolExecutor(4, "reaper")
        argv = wrapper_argv(settings.home, instance, groups)
        self.wrappers = Wrappers(argv, self.watch, self.lock, self)
        self._rooms = Rooms(groups, self.reapers)
        self._clearing = Clearing(traces, instance, self.devices, self.lock)
        self._log_order = LogOrder()

    def expect_start(self) -> None:
        with self.lock:
            self.wrappers.expect()

    def close(self) -> None:
        """What runs goes on. The watch is closed before. Scripts stay open: a wrapper may be about to open one."""
        self.wrappers.close()

    def begin(self, attempt: Attempt) -> None:
        """Just before its wrapper is told: from here on nothing of its log is missed."""
        self._log_order.begin(attempt.id, JobFolder.of(self._jobs, attempt.job.id), attempt.job.attempt)

    def never_began(self, attempt_id: AttemptId) -> None:
        self._log_order.end(attempt_id)

    def take_up(self, attempt: Attempt) -> list[Observation]:
        """One that an earlier server has started, was about to, or had stand behind another."""
        if attempt.id in self.running:
            return [self.started(attempt.id)]
        if self.take_out(attempt.id):
            return [Ended(attempt.id, utc_now(), Cause.NOT_STARTED)]
        if self.running_one(attempt.id):  # it has just begun in its line
            return [self.started(attempt.id)]
        was_before_boot = attempt.job.started_at is not None and attempt.job.started_at < boot_time()
        if self._traces.disown(attempt.id) and not was_before_boot:
            return [Ended(attempt.id, utc_now(), Cause.NOT_STARTED)]
        seen = self._take_up_claimed(attempt)
        if not (attempt.job.handed_over and isinstance(seen, Ended)):
            return [seen]
        began_at = self._traces.claimed_at(attempt.id)
        return [self.started(attempt.id, min(began_at, seen.at) if began_at else seen.at), seen]

    def _take_up_claimed(self, attempt: Attempt) -> Started | Ended:
        claim, ending = self._traces.claim(attempt.id), self._traces.ending(attempt.id)
        if claim is None:
            return ended_before_boot(attempt, ending)
        running = Running(
            attempt,
            Wrapper(claim, runs=[attempt.id]),
            self._room_of(attempt.id, claim),
            is_contained=attempt.job.spec.wants_container,
        )
        if ending.is_quiet:  # its room may be another's by now
            return ended(running, ending)
        self.begin(attempt)
        if ending.exit_code is not None or not self._watched(running):
            if end := self._clearing.usual_end(running, self._traces.ending(attempt.id)):
                self._log_order.end(attempt.id)
                return end
            self.running[attempt.id] = running
            self.reapers.submit(self._end, running)
        return self.started(attempt.id, self._traces.claimed_at(attempt.id))

    def _room_of(self, attempt_id: AttemptId, claim: Claim) -> Room:
        """That an earlier server has made for it, or for another before it."""
        group = self._groups.find(claim.group) or marked(self._instance, attempt_id)
        if not self._groups.folders:
            led(group, claim)
        return self._rooms.found(claim.group, group)

    def _watched(self, running: Running) -> bool:
        """One that an earlier server has started. False when it is over already."""
        wrapper = running.wrapper
        pidfd = open_pidfd(wrapper.claim.pid, wrapper.claim.start_time or 0)
        if pidfd is None:
            wrapper.is_gone = True
            return False
        with self.lock:
            self.running[running.attempt.id] = running
        self.watch.on_exit(pidfd, lambda: self.gone(wrapper))
        return True

    def started(self, attempt_id: AttemptId, at: datetime | None = None) -> Started:
        return Started(attempt_id, at or utc_now(), (Place(self._node, ()),))

    def hand_over(self, attempt: Attempt, order: Order, guest: Guest) -> bool:
        """Whether it runs now; or others are before it. With the lock. OSError when it cannot be started, NotFree
        when it is to stand behind one that is being stopped."""
        try:
            return self._hand_to(self._wrapper_for(attempt), attempt, order, guest)
        except BrokenPipeError:  # it has just left
            return self._hand_to(self.wrappers.take(), attempt, order, guest)

    def _wrapper_for(self, attempt: Attempt) -> Wrapper:
        """That of the one it stands behind, if that still has something to run."""
        behind = attempt.behind or ""
        before = self.running.get(behind) or self.lined_up.get(behind)
        if before is None or behind not in before.wrapper.told:
            return self.wrappers.take()
        if before.wrapper.is_dismissed:
            raise NotFree
        return before.wrapper

    def _hand_to(self, wrapper: Wrapper, attempt: Attempt, order: Order, guest: Guest) -> bool:
        try:
            room = self._rooms.enter(guest, wrapper.room)
        except OSError:
            self._rest_if_idle(wrapper)
            raise
        wrapper.room = None if room.is_closed else room
        led(room.group, wrapper.claim)
        runs_now = not wrapper.told
        try:
            if guest.is_contained:
                open_groups(room.group.enter_files)
            wrapper.tell(order, room.name)
        except OSError:
            room.leave()
            self.wrappers.dismiss(wrapper)
            raise
        running = Running(
            attempt, wrapper, room, is_contained=guest.is_contained, is_first=room.uses == 1, order=order
        )
        running.began_at = time.monotonic()
        (self.running if runs_now else self.lined_up)[attempt.id] = running
        return runs_now

    def take_out(self, attempt_id: AttemptId) -> bool:
        """Of the line, for good. False: it is not there, or it has just started."""
        with self.lock:
            running = self.lined_up.get(attempt_id)
            if running is None or not self._traces.disown(attempt_id, at_once=True):
                return False
            del self.lined_up[attempt_id]
            running.room.leave()
            if running.order:
                running.wrapper.given_up[attempt_id] = running.order
        self._log_order.end(attempt_id)
        return True

    def be_last(self, running: Running) -> bool:
        """Of its wrapper and in its room: whoever signals what is there means nobody else. False: it is over."""
        with self.lock:
            told = [one for one in running.wrapper.told if one != running.attempt.id]
            self.wrappers.dismiss(running.wrapper)
        behind = [attempt_id for attempt_id in told if self.take_out(attempt_id)]
        self._tell([Ended(attempt_id, utc_now(), Cause.NOT_STARTED) for attempt_id in behind])
        return self._traces.ending(running.attempt.id).exit_code is None

    def running_one(self, attempt_id: AttemptId) -> Running | None:
        """Also one that has just begun in its line, before its wrapper could say so."""
        with self.lock:
            return self._begun(attempt_id) or self.running.get(attempt_id)

    def heard(self, wrapper: Wrapper) -> object:
        """With many left to run, it goes on by itself: several of its words may be read at once."""
        had_a_line = len(wrapper.told) > 1
        seen = self._listen_to(wrapper)
        self.runs_low = had_a_line and len(wrapper.told) <= _FEW and len(self.lined_up) < _FEW_IN_ALL
        self._tell(seen)
        return NO_HURRY if len(wrapper.told) > _MANY else None

    def gone(self, wrapper: Wrapper) -> None:
        """Nobody knows whether it has begun with those it was still told to run."""
        seen = self._listen_to(wrapper)
        wrapper.is_gone = True
        with self.lock:
            self.wrappers.hang_up(wrapper)
        never = [attempt_id for attempt_id in wrapper.told if self.take_out(attempt_id)]
        seen += [Ended(attempt_id, utc_now(), Cause.NOT_STARTED) for attempt_id in never]
        while wrapper.told:
            seen += self._over(wrapper, wrapper.told[0], utc_now())
        self._tell(seen)

    def _listen_to(self, wrapper: Wrapper) -> list[Observation]:
        """What is heard together has one time: what is alike is recorded at once."""
        said = wrapper.hear()
        with self.lock:  # whose start is being told was started before
            now = utc_now()
        return [seen for attempt_id, how in said for seen in self._over(wrapper, attempt_id, now, how)]

    def _over(self, wrapper: Wrapper, attempt_id: AttemptId, now: datetime, how: str = "") -> list[Observation]:
        """The start of the next one is told together with its end, so that its place is never seen empty. Nobody
        says how one ended whose wrapper is gone."""
        with self.lock:
            wrapper.told.remove(attempt_id)
            given_up = wrapper.given_up.pop(attempt_id, None)
            running, begun = self.running.get(attempt_id), self._begin_next(wrapper)
            if running and time.monotonic() - running.began_at > SHORT_SECONDS:
                self.wrappers.close_room(wrapper)
            self._rest_if_idle(wrapper)
        if given_up:
            given_up.close()
        seen: list[Observation] = [self.started(begun.attempt.id, now)] if begun else []
        return seen + self._end_soon(running, how, now) if running else seen

    def _begin_next(self, wrapper: Wrapper) -> Running | None:
        """Whose turn it is, if that is news; those that were taken out let others pass."""
        for attempt_id in wrapper.told:
            if attempt_id in self.running:
                break
            if begun := self._begun(attempt_id):
                return begun
        return None

    def _begun(self, attempt_id: AttemptId) -> Running | None:
        """It has left the line. None: it was not there."""
        if running := self.lined_up.pop(attempt_id, None):
            self.running[attempt_id], running.began_at = running, time.monotonic()
        return running

    def _rest_if_idle(self, wrapper: Wrapper) -> None:
        if not wrapper.told:
            self._rest(wrapper)

    def _rest(self, wrapper: Wrapper) -> None:
        """Without cgroups its session tells whose a process is: then it is for one attempt only."""
        if self._groups.folders and wrapper.line is not None and not wrapper.is_dismissed:
            self.wrappers.put_back(wrapper)
        else:
            self.wrappers.hang_up(wrapper)

    def _end_soon(self, running: Running, how: str = "", now: datetime | None = None) -> list[Observation]:
        """Its end, if that is known at once."""
        try:
            end = self._clearing.usual_end(running, self._ending(running, how), now)
        except OSError:
            end = None  # no descriptor left, say: the reaper tries until it knows
        if end is None:
            self.reapers.submit(self._end, running)
            return []
        self._let_go(running)
        return [end]

    def _let_go(self, running: Running) -> None:
        self._log_order.end(running.attempt.id)
        with self.lock:
            self.running.pop(running.attempt.id, None)
        if running.order:
            running.order.close()

    def _ending(self, running: Running, how: str) -> Ending:
        """As its wrapper has told it, or left it on disk."""
        if not how or running.order is None:
            return self._traces.ending(running.attempt.id)
        return ending_of(how, running.order.has_limit and self._traces.timed_out(running.attempt.id))

    def _end(self, running: Running) -> None:
        try:
            end = self._clearing.end(running)
        except (ProcessesLeft, OSError) as error:
            log.warning("attempt_not_finished", attempt=running.attempt.id, error=repr(error))
            self.watch.call_after(5.0, lambda: self._tell(self._end_soon(running)))
        else:
            self._let_go(running)
            self.report([end])

    def _holders(self) -> dict[str, list[AttemptId]]:
        with self.lock:
            return holders(self.running.values())

    def _tell(self, seen: Sequence[Observation]) -> None:
        if seen:
            self.report(seen)

    def terminate(self, running: Running, signal: Signals) -> None:
        """The payload enters its group a moment after the wrapper has started: the signal waits for it."""
        if not self.be_last(running):
            return
        has_entered = bool(running.group.pids())
        if running.is_contained:
            signal_container(running.group, signal)
        else:
            running.group.signal(signal)
        if not has_entered and self.running.get(running.attempt.id) is running:
            self.watch.call_after(0.02, lambda: self.terminate(running, signal))

    def kill(self, attempt_id: AttemptId) -> None:
        if (running := self.running.get(attempt_id)) and self.be_last(running):
            self.reapers.submit(self._kill, running)

    def _kill(self, running: Running) -> None:
        """Its wrapper goes on: a job of our own user can stop its process group, which is the wrapper's too."""
        running.group.kill()
        if (claim := self._traces.claim(running.attempt.id)) and claim.start_time:
            send_signal(claim.pid, claim.start_time, SIGCONT)
