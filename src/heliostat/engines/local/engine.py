"""Runs jobs on this machine. They need no server while they run, and outlive it."""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from signal import Signals

from heliostat.config import Settings
from heliostat.engines.containers import enter_script
from heliostat.engines.contract import Capabilities, Report
from heliostat.engines.environment import CHECKPOINT_FILE, DEFAULT_PATH, Person
from heliostat.engines.folders import JobFolder, Refused, person_of
from heliostat.engines.inside import Inside, as_user, inside_script, on_terminal
from heliostat.engines.job_files import JobFiles
from heliostat.engines.local import containers, launch
from heliostat.engines.local.cgroups import CgroupTree, Group, NoCgroups, find_cgroups
from heliostat.engines.local.containers import Place
from heliostat.engines.local.endings import Running, in_words, utc_now
from heliostat.engines.local.endpoints import LocalEndpoint
from heliostat.engines.local.image_stores import RunningSweep, sweep_stores
from heliostat.engines.local.log_order import read_order
from heliostat.engines.local.machine import node_name, this_node
from heliostat.engines.local.port_ownership import NotListening, OwnershipChecks, find_listening
from heliostat.engines.local.processes import is_of
from heliostat.engines.local.sampling import UsageReader
from heliostat.engines.local.script import Places, base_environment
from heliostat.engines.local.supervision import Supervision
from heliostat.engines.local.trace import Traces
from heliostat.engines.local.ungrouped import MARK, UngroupedTree, led
from heliostat.errors import Conflict
from heliostat.models import Attempt, AttemptId, Cause, Ended, JobId, Node, Observation, Readings, Started
from heliostat.models.sessions import Listening
from heliostat.server_log import get_logger

log = get_logger()
_SWEEP_SECONDS = 600.0

# Enters the cgroup first, as whoever the server is; a group that is gone lets nobody in.
_ENTER = 'for file in $1; do echo 0 >"$file" || exit 125; done; shift; exec "$@"'


class LocalEngine:
    """The engine of one machine."""

    name = "local"
    capabilities = Capabilities(contains=True, equips=True, runs_here=True)

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._node = node_name(settings.server.node_name)
        self._instance = containers.instance_of(settings.home)
        self._traces = Traces(settings.home.attempts)
        found = find_cgroups(self._instance)
        self._no_cgroups = found.reason if isinstance(found, NoCgroups) else None
        self._groups: CgroupTree = UngroupedTree(self._instance) if isinstance(found, NoCgroups) else found
        self._supervision = Supervision(settings, self._instance, self._traces, self._groups)
        self._running, self._lock = self._supervision.running, self._supervision.lock
        self._watch, self._reapers = self._supervision.watch, self._supervision.reapers
        self._devices = self._supervision.devices
        self._queued: set[AttemptId] = set()
        self._forgotten: list[AttemptId] = []
        self._uncontained: set[AttemptId] = set()  # those started here that are in no container
        self._usage = UsageReader(self._devices)
        self._report: Report = lambda observations: None
        self._starters = ThreadPoolExecutor(4, "starter")
        self._port_checks = OwnershipChecks(self._listening)
        files = JobFiles(settings.home.jobs)
        self.read_log, self.log_folder, self.has_files = files.read_log, files.log_folder, files.has_files
        self.list_job_files, self.open_job_file = files.list_job_files, files.open_job_file
        self.read_job_file, self.work_folder = files.read_job_file, files.work_folder
        self._files, self._folder = files, files.folder

    def on_observation(self, report: Report) -> None:
        self._report = self._supervision.report = report

    def on_nodes_changed(self, changed: Callable[[], None]) -> None:
        self._devices.on_change(changed)

    def nodes(self) -> list[Node]:
        notes = tuple(note for note in (self._devices.note, self._no_cgroups) if note)
        return [this_node(self._settings.server.node_name, self._devices.now(), notes)]

    def image_sweeps(self) -> Iterator[RunningSweep]:
        return sweep_stores(self._settings.home, self._settings.containers)

    def start(self, attempts: Sequence[Attempt]) -> None:
        """In other threads: to start an attempt may mean to ask a driver that hangs, or to copy many files."""
        for attempt in attempts:
            with self._lock:
                if attempt.id in self._queued or attempt.id in self._running:
                    continue
                self._queued.add(attempt.id)
            self._starters.submit(self._start_queued, attempt)

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        waiting = set(self._queued)  # they are not started yet, and will be
        return [self._supervision.take_up(attempt) for attempt in attempts if attempt.id not in waiting]

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        with self._lock:
            running, was_queued = self._running.get(attempt.id), attempt.id in self._queued
            self._queued.discard(attempt.id)
        if was_queued:
            self._report([Ended(attempt.id, utc_now(), Cause.STOPPED)])
        if running is None:
            return
        if signal not in running.signals:
            running.signals += (signal,)
            self._supervision.terminate(running, Signals[f"SIG{signal}"])
        self._watch.call_after(grace_seconds, lambda: self._supervision.kill(attempt.id))

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        """Swept a while later, many at once: file systems are slow where files come and go all the time."""
        with self._lock:
            if not self._forgotten:
                self._watch.call_after(_SWEEP_SECONDS, lambda: self._reapers.submit(self._sweep))
            forgotten = list(attempt_ids)
            self._forgotten += forgotten
            doubtful = [attempt_id for attempt_id in forgotten if attempt_id not in self._uncontained]
            self._uncontained.difference_update(forgotten)
        place = Place(self._settings, self._instance)
        if over := [attempt_id for attempt_id in doubtful if containers.has_container(place, attempt_id)]:
            self._reapers.submit(containers.clean, place, over)

    def forget_all_but(self, attempt_ids: Collection[AttemptId]) -> None:
        self._traces.remove_all_but(attempt_ids)
        claims = [self._traces.claim(attempt_id) for attempt_id in attempt_ids]
        for name in set(self._groups.names()) - {claim.group for claim in claims if claim}:
            if (group := self._groups.find(name)) and group.kill():
                group.remove()
        place = Place(self._settings, self._instance)
        containers.clean(place, containers.leftovers(place, attempt_ids))

    def exec(self, attempt: Attempt, command: Sequence[str], terminal: str = "") -> Inside:
        with self._lock:
            running = self._running.get(attempt.id)
        if running is None or running.is_over:
            raise Conflict(f"Job {attempt.job.id} is not running any more.", f"helio show {attempt.job.id}")
        person, folder = person_of(attempt.job.unix_user), self._folder(attempt.job.id)
        mark = f"{self._instance}-{attempt.id}"
        if running.is_contained:
            place = Place(self._settings, self._instance)
            door = containers.door(place, attempt, running.group.pids(), terminal)
            return inside_group(enter_script(attempt, door, command), person, running.group, mark)
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

    def endpoint(self, attempt: Attempt, port: int) -> LocalEndpoint:
        return LocalEndpoint(self._port_checks, attempt, port)

    def session_port(self, attempt: Attempt) -> int | None:
        return self._files.session_port(attempt.job.id, [attempt.job.attempt])

    def attach_endpoints(self) -> None:
        """They need no loop of their own."""

    async def detach_endpoints(self) -> None:
        self._port_checks.close()

    def _listening(self, attempt: Attempt, port: int) -> Listening:
        with self._lock:
            running = self._running.get(attempt.id)
        if running is None or running.is_over:
            raise Conflict(f"Job {attempt.job.id} is not running any more.", f"helio show {attempt.job.id}")
        try:
            return find_listening(port, self._pids(running))
        except NotListening as error:
            hint = "Start a server in the job first; it must listen on 127.0.0.1 or on all addresses."
            raise Conflict(f"Job {attempt.job.id}: {error}.", hint, code="not_listening") from error

    def _pids(self, running: Running) -> list[int]:
        """Without cgroups a mark tells whose a process is, which anybody can set: then only those of its user."""
        pids = running.group.pids()
        if self._no_cgroups is None:
            return pids
        person = person_of(running.attempt.job.unix_user)
        return [pid for pid in pids if is_of(pid, person.name, person.uid)]

    def extend(self, attempt: Attempt, limit_seconds: int) -> None:
        if limit_seconds > (attempt.job.time_limit_seconds or 0):
            self._traces.extend(attempt.id, limit_seconds)

    def log_order(self, job_id: JobId, attempt: int) -> list[tuple[str, int]]:
        return read_order(Path(self._folder(job_id).log(attempt, "order")))

    def checkpoint_times(self, attempts: Sequence[Attempt]) -> dict[AttemptId, datetime]:
        return checkpoint_times(self._settings.home.jobs, attempts, utc_now())

    def sample(self) -> Readings:
        with self._lock:
            running = [one for one in self._running.values() if not one.is_over]
        return self._usage.read(self._node, running)

    def close(self) -> None:
        self._starters.shutdown()
        self._watch.close()
        self._devices.close()
        self._reapers.shutdown(wait=False, cancel_futures=True)
        self._groups.remove()  # unless there are jobs inside
        containers.leave(Place(self._settings, self._instance))

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
        with contextlib.ExitStack() as unless_started:
            group = self._groups.create(attempt.id, launch.limits_of(attempt, self._settings.queue))
            unless_started.callback(group.remove)
            if payload.commands:
                containers.open_groups(group.enter_files)
            self._supervision.begin(attempt)
            unless_started.callback(self._supervision.never_began, attempt.id)
            with self._lock:  # from here on it runs, and is stopped as what runs; before, it is not even started
                if attempt.id not in self._queued:
                    return
                claim = launch.spawn(payload, folder, self._traces.path(attempt.id), group)
                unless_started.pop_all()
                running = Running(attempt, claim, led(group, claim), is_contained=bool(payload.commands))
                running.began_at = time.monotonic()
                self._running[attempt.id] = running
                self._queued.discard(attempt.id)
                if not payload.commands and not payload.places.tool:
                    self._uncontained.add(attempt.id)
        self._report([Started(attempt.id, utc_now())])
        self._supervision.keep_watching(running)

    def _sweep(self) -> None:
        with self._lock:
            forgotten, self._forgotten = self._forgotten, []
        self._traces.remove(forgotten)

    def _not_started(self, attempt: Attempt, detail: str) -> None:
        self._report([Ended(attempt.id, utc_now(), Cause.NOT_STARTED, detail=detail)])


def checkpoint_times(jobs: Path, attempts: Iterable[Attempt], now: datetime) -> dict[AttemptId, datetime]:
    """When jobs have said, by touching a file, that their work is saved: those that have since they started.
    The files are theirs, and not trusted; a time to come counts as now."""
    found: dict[AttemptId, datetime] = {}
    for attempt in attempts:
        folder = JobFolder.of(jobs, attempt.job.id)
        saved_at = _modified_at(f"{folder.checkpoints}/{CHECKPOINT_FILE}")
        started_at = attempt.job.started_at
        if saved_at is not None and started_at is not None and saved_at >= started_at:
            found[attempt.id] = min(saved_at, now)
    return found


def _modified_at(path: str) -> datetime | None:
    """Of a plain file; a link could tell of a file that its user may not see."""
    try:
        facts = os.lstat(path)
        return datetime.fromtimestamp(facts.st_mtime, UTC) if stat.S_ISREG(facts.st_mode) else None
    except (OSError, OverflowError, ValueError):
        return None


def inside_group(script: str, person: Person, group: Group, mark: str) -> Inside:
    """The script on a descriptor: neither on the disk nor on a command line. OSError when there is none left."""
    descriptor = os.memfd_create("inside")
    os.write(descriptor, script.encode("utf-8", "surrogateescape"))
    program = (*as_user(person), "/bin/sh", f"/proc/self/fd/{descriptor}")
    return Inside(
        argv=("/bin/sh", "-c", _ENTER, "inside", " ".join(group.enter_files), *program),
        environment={"PATH": DEFAULT_PATH, MARK: mark},
        descriptors=(descriptor,),
        close=lambda: os.close(descriptor),
        owner=person.uid,
    )
