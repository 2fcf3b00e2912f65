"""Runs jobs on this machine. They need no server while they run, and outlive it."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from signal import Signals

import structlog

from heliostat.config import Settings
from heliostat.engines.contract import Capabilities, Report
from heliostat.engines.folders import JobFolder, Refused, person_of
from heliostat.engines.inside import Inside, inside_script, on_terminal
from heliostat.engines.local import containers, launch
from heliostat.engines.local.cgroups import CgroupTree, Group, Limits, NoCgroups, find_cgroups
from heliostat.engines.local.checkpoints import checkpoint_times
from heliostat.engines.local.containers import Place
from heliostat.engines.local.devices import Devices
from heliostat.engines.local.endings import (
    Running,
    ended,
    ended_before_boot,
    holders,
    in_words,
    ran_out_of_memory,
    utc_now,
)
from heliostat.engines.local.inside import inside_group
from heliostat.engines.local.insiders import signal_container
from heliostat.engines.local.log_order import LogOrder, read_order
from heliostat.engines.local.machine import node_name, this_node
from heliostat.engines.local.processes import boot_time, start_time
from heliostat.engines.local.sampling import UsageReader
from heliostat.engines.local.script import Places, base_environment
from heliostat.engines.local.trace import Claim, Ending, Traces
from heliostat.engines.local.ungrouped import UngroupedProcesses, UngroupedTree
from heliostat.engines.local.watch import Watch
from heliostat.errors import Conflict
from heliostat.models import Attempt, AttemptId, Cause, Ended, JobId, Node, Observation, Readings, Started

log = structlog.get_logger()
_SWEEP_SECONDS = 600.0
_WARM_SECONDS = 0.008


class ProcessesLeft(Exception):
    """Not even KILL has ended them yet, as when they hang in the kernel."""


class LocalEngine:
    """The engine of one machine."""

    name = "local"
    capabilities = Capabilities(contains=True, equips=True)

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._instance = hashlib.sha256(str(settings.home.path).encode()).hexdigest()[:8]
        self._traces = Traces(settings.home.attempts)
        found = find_cgroups(self._instance)
        self._no_cgroups = found.reason if isinstance(found, NoCgroups) else None
        self._groups: CgroupTree = UngroupedTree(self._instance) if isinstance(found, NoCgroups) else found
        self._running: dict[AttemptId, Running] = {}
        self._queued: set[AttemptId] = set()
        self._forgotten: list[AttemptId] = []
        self._last_entry = 0.0
        self._lock = threading.Lock()
        self._devices = Devices(settings.simulate_gpus, self._instance, self._holders)
        self._usage = UsageReader(self._devices)
        self._report: Report = lambda observations: None
        self._watch = Watch()
        self._log_order = LogOrder()
        self._starter = ThreadPoolExecutor(1, "starter")
        self._reapers = ThreadPoolExecutor(4, "reaper")

    def on_observation(self, report: Report) -> None:
        self._report = report

    def on_nodes_changed(self, changed: Callable[[], None]) -> None:
        self._devices.on_change(changed)

    def nodes(self) -> list[Node]:
        notes = tuple(note for note in (self._devices.note, self._no_cgroups) if note)
        return [this_node(self._settings.node_name, self._devices.now(), notes)]

    def expect_start(self) -> None:
        """The first entry into a cgroup after a pause costs up to 10 ms: let that pass while the job is stored."""
        now = time.monotonic()
        if now - self._last_entry > _WARM_SECONDS:
            self._last_entry = now
            self._reapers.submit(self._groups.warm_up)

    def start(self, attempts: Sequence[Attempt]) -> None:
        self._last_entry = time.monotonic()
        for attempt in attempts:
            with self._lock:
                if attempt.id in self._queued or attempt.id in self._running:
                    continue
                self._queued.add(attempt.id)
            if attempt.devices or attempt.job.spec.upload:
                # It asks the driver, which may hang, or copies many files.
                self._starter.submit(self._start_queued, attempt)
            else:
                self._start_queued(attempt)

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        waiting = set(self._queued)  # they are not started yet, and will be
        return [self._observe(attempt) for attempt in attempts if attempt.id not in waiting]

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        with self._lock:
            running = self._running.get(attempt.id)
            was_queued = attempt.id in self._queued
            self._queued.discard(attempt.id)
        if was_queued:
            self._report([Ended(attempt.id, utc_now(), Cause.STOPPED)])
        if running is None:
            return
        if signal not in running.signals:
            running.signals += (signal,)
            self._terminate(running, Signals[f"SIG{signal}"])
        self._watch.call_after(grace_seconds, lambda: self._kill(attempt.id))

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        """Swept a while later, many at once: file systems are slow where files come and go all the time."""
        with self._lock:
            if not self._forgotten:
                self._watch.call_after(_SWEEP_SECONDS, lambda: self._reapers.submit(self._sweep))
            forgotten = list(attempt_ids)
            self._forgotten += forgotten
        place = Place(self._settings, self._instance)
        if over := [attempt_id for attempt_id in forgotten if containers.has_container(place, attempt_id)]:
            self._reapers.submit(containers.clean, place, over)

    def forget_all_but(self, attempt_ids: Collection[AttemptId]) -> None:
        self._traces.remove_all_but(attempt_ids)
        for name in set(self._groups.names()) - set(attempt_ids):
            if (group := self._groups.find(name)) and group.kill():
                group.remove()
        place = Place(self._settings, self._instance)
        containers.clean(place, containers.leftovers(place, attempt_ids))

    def inside(self, attempt: Attempt, command: Sequence[str], terminal: str = "") -> Inside:
        with self._lock:
            running = self._running.get(attempt.id)
        if running is None or running.is_over:
            raise Conflict(f"Job {attempt.job.id} is not running any more.", f"helio show {attempt.job.id}")
        if running.is_contained:
            hint = "Let the job itself do it, or start a job with the same image."
            raise Conflict(f"Job {attempt.job.id} runs in a container, which helio exec cannot enter yet.", hint)
        person, folder = person_of(attempt.job.unix_user), self._folder(attempt.job.id)
        mark = f"{self._instance}-{attempt.id}"
        places = Places(
            workdir=attempt.job.spec.workdir or f"{folder.path}/work",
            script=None,
            installation=str(self._settings.home.path),
            mark=mark,
            checkpoints=folder.checkpoints,
            device_memory_mib=self._devices.memory_mib(attempt.devices),
        )
        environment = (
            base_environment(attempt, person, places) | dict(attempt.job.spec.env) | on_terminal(terminal)
        )
        return inside_group(inside_script(environment, places.workdir, command), person, running.group, mark)

    def driver_version(self) -> str | None:
        try:
            return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None

    def log_path(self, job_id: JobId, attempt: int, stream: str) -> Path:
        return Path(self._folder(job_id).log(attempt, stream))

    def log_order(self, job_id: JobId, attempt: int) -> list[tuple[str, int]]:
        return read_order(Path(self._folder(job_id).log(attempt, "order")))

    def checkpoint_times(self, attempts: Sequence[Attempt]) -> dict[AttemptId, datetime]:
        return checkpoint_times(self._settings.home.jobs, attempts, utc_now())

    def sample(self) -> Readings:
        with self._lock:
            running = [one for one in self._running.values() if not one.is_over]
        return self._usage.read(node_name(self._settings.node_name), running)

    def close(self) -> None:
        self._starter.shutdown()
        self._watch.close()
        self._devices.close()
        self._reapers.shutdown(wait=False, cancel_futures=True)
        self._groups.remove()  # unless there are jobs inside
        containers.leave(Place(self._settings, self._instance))

    def _folder(self, job_id: JobId) -> JobFolder:
        return JobFolder.of(self._settings.home.jobs, job_id)

    def _start_queued(self, attempt: Attempt) -> None:
        try:
            if not self._traces.exists(attempt.id):
                self._start(attempt)
        except Refused as error:
            self._report([Ended(attempt.id, utc_now(), Cause.REFUSED, detail=str(error))])
        except OSError as error:
            self._not_started(attempt, f"it could not be started: {in_words(error)}")
        except Exception as error:
            log.exception("start_failed", attempt=attempt.id)
            self._not_started(attempt, f"it could not be started: {error}")
        finally:
            with self._lock:
                self._queued.discard(attempt.id)

    def _start(self, attempt: Attempt) -> None:
        person = person_of(attempt.job.unix_user)
        if busy := self._devices.why_not(attempt.devices):
            self._not_started(attempt, busy)
            return
        folder = self._folder(attempt.job.id)
        mark = f"{self._instance}-{attempt.id}"
        memory_mib = self._devices.memory_mib(attempt.devices)
        place = Place(self._settings, self._instance, self._devices.files(attempt.devices))
        payload = launch.prepare(attempt, person, folder, launch.Site(self._settings, mark, memory_mib, place))
        group = self._groups.create(attempt.id, launch.limits_of(attempt, self._settings))
        try:
            if payload.commands:
                containers.open_groups(group.enter_files)
            with self._lock:  # from here on it runs, and is stopped as what runs; before, it is not even started
                if attempt.id not in self._queued:
                    group.remove()
                    return
                self._log_order.begin(attempt.id, partial(folder.log, attempt.job.attempt))
                claim = launch.spawn(payload, folder, self._traces.path(attempt.id), group)
                self._running[attempt.id] = running = self._under_way(attempt, claim, group)
                self._queued.discard(attempt.id)
        except OSError:
            group.remove()
            raise
        self._report([Started(attempt.id, utc_now())])
        self._keep_watching(running)

    def _under_way(self, attempt: Attempt, claim: Claim, group: Group) -> Running:
        """What it runs in is told by the disk: of a job that was taken up again, little else is known."""
        place = Place(self._settings, self._instance)
        return Running(attempt, claim, group, is_contained=containers.has_container(place, attempt.id))

    def _sweep(self) -> None:
        with self._lock:
            forgotten, self._forgotten = self._forgotten, []
        self._traces.remove(forgotten)

    def _not_started(self, attempt: Attempt, detail: str) -> None:
        self._report([Ended(attempt.id, utc_now(), Cause.NOT_STARTED, detail=detail)])

    def _observe(self, attempt: Attempt) -> Observation:
        if attempt.id in self._running:
            return Started(attempt.id, utc_now())
        was_before_boot = attempt.job.started_at is not None and attempt.job.started_at < boot_time()
        if self._traces.disown(attempt.id) and not was_before_boot:
            if unused := self._groups.find(attempt.id):
                unused.remove()
            return Ended(attempt.id, utc_now(), Cause.NOT_STARTED)
        claim = self._traces.claim(attempt.id)
        if claim is None:
            return ended_before_boot(attempt, self._traces.ending(attempt.id))
        running = self._under_way(attempt, claim, self._groups.find(attempt.id) or self._marked(attempt))
        self._log_order.begin(attempt.id, partial(self._folder(attempt.job.id).log, attempt.job.attempt))
        if not self._begin_watching(running):
            if end := self._usual_end(running):
                self._log_order.end(attempt.id)
                return end
            self._running[attempt.id] = running
            self._reapers.submit(self._end, running)
        return Started(attempt.id, utc_now())

    def _keep_watching(self, running: Running) -> None:
        """It runs, so nothing may say that it could not be started: not even that no descriptor is left for it."""
        try:
            if not self._begin_watching(running):
                self._wrapper_ended(running)
        except OSError as error:
            log.warning("attempt_not_watched", attempt=running.attempt.id, error=repr(error))
            self._watch.call_after(1.0, lambda: self._keep_watching(running))

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
        self._running[running.attempt.id] = running
        self._watch.on_exit(pidfd, lambda: self._wrapper_ended(running))
        return True

    def _wrapper_ended(self, running: Running) -> None:
        try:
            end = self._usual_end(running)
        except OSError:
            end = None  # no descriptor left, say: the reaper tries until it knows
        if end:
            self._tell_end(end)
        else:
            self._reapers.submit(self._end, running)

    def _usual_end(self, running: Running) -> Ended | None:
        """With an exit status and nothing left. Only a group that is empty can be removed."""
        if running.attempt.devices and self._devices.are_real:
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
            self._watch.call_after(5.0, lambda: self._wrapper_ended(running))
        else:
            self._tell_end(end)

    def _clear(self, running: Running) -> Ended:
        """Nothing of it may be left when its end is told: its devices go to somebody else."""
        ending = self._traces.ending(running.attempt.id)
        for tries in range(100):
            if self._removed(running, ending):
                break
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
        if devices and self._devices.are_real and not self._devices.wait_until_left(running.attempt.id, devices):
            log.warning("devices_not_empty", attempt=running.attempt.id, devices=devices)

    def _holders(self) -> dict[str, list[AttemptId]]:
        with self._lock:
            return holders(self._running.values())

    def _removed(self, running: Running, ending: Ending) -> bool:
        if ending.exit_code != 0 and ran_out_of_memory(running, ending):  # the count goes with the group
            running.out_of_memory = True
        return running.group.remove()

    def _tell_end(self, end: Ended) -> None:
        self._log_order.end(end.attempt_id)
        with self._lock:
            self._running.pop(end.attempt_id, None)
        self._report([end])

    def _terminate(self, running: Running, signal: Signals) -> None:
        """The payload enters its group a moment after the wrapper has started: the signal waits for it."""
        has_entered = bool(running.group.pids())
        if running.is_contained:
            signal_container(running.group, signal)
        else:
            running.group.signal(signal)
        if not has_entered and self._running.get(running.attempt.id) is running:
            self._watch.call_after(0.02, lambda: self._terminate(running, signal))

    def _kill(self, attempt_id: AttemptId) -> None:
        if running := self._running.get(attempt_id):
            self._reapers.submit(running.group.kill)

    def _marked(self, attempt: Attempt) -> Group:
        """What carries its mark: all there can be left when its cgroup is gone, or outside of it."""
        return UngroupedTree(self._instance).create(attempt.id, Limits())
