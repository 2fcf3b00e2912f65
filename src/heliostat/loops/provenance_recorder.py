"""Notes on which machines attempts run, so that people can see later what has changed. Nobody waits for it."""

import re
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from heliostat import __version__
from heliostat.config import ContainerSettings
from heliostat.controller.failure_details import read_job_text
from heliostat.controller.node_inventory import NodeInventory
from heliostat.engines.contract import Engine
from heliostat.engines.job_variables import IMAGE_DIGEST_FILE
from heliostat.loops.dataset_versions import DatasetVersions
from heliostat.models import Device, Job, JobId, JobState
from heliostat.models.provenance import AttemptEnvironment, find_image_digest
from heliostat.models.states import TERMINAL_STATES
from heliostat.server_log import get_logger
from heliostat.store import jobs as stored
from heliostat.store.database import Store, StoreChanges, Transaction
from heliostat.store.provenance import (
    add_attempt_environments,
    lacks_image_digest,
    list_attempts_without_environment,
    remove_attempt_environments,
)

log = get_logger()
_GATHER_SECONDS = 1.0  # many starts share one commit
_DIGEST = re.compile(r'".*?(sha256:[0-9a-f]{64})', re.S)  # else it says why there is none
_LOOK_BACK = timedelta(minutes=10)  # what may have ended just before the server did


@dataclass(frozen=True, slots=True)
class ProvenanceSources:
    """What attempts are seen in."""

    store: Store
    engine: Engine
    node_inventory: NodeInventory


class ProvenanceRecorder:
    """Hears of starts from commits; what the last server left out is caught up with at the start."""

    def __init__(
        self, seen: ProvenanceSources, containers: ContainerSettings, now: Callable[[], datetime]
    ) -> None:
        self._store, self._engine, self._fleet, self._now = seen.store, seen.engine, seen.node_inventory, now
        self._datasets = DatasetVersions(containers.mount_paths)
        self._nameless: set[tuple[JobId, int]] = set()  # that run in an image of which nobody knows yet what it is
        self._waiting: set[tuple[JobId, int]] = set()
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        self._store.on_commit(self._hear)
        with self._store.read() as conn:
            self._add(list_attempts_without_environment(conn, self._now() - _LOOK_BACK))
            numbers = [job.id for job in stored.list_unfinished_jobs(conn) if job.attempt]
            running = [job for job in stored.get_container_jobs(conn, numbers).values() if job.spec.image]
            self._nameless |= {
                (job.id, job.attempt) for job in running if lacks_image_digest(conn, job.id, job.attempt)
            }
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def record(self) -> int:
        """What is known by now; of how many attempts."""
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        if not waiting:
            return 0
        with self._store.read() as conn:
            numbers = {job_id for job_id, _ in waiting}
            jobs = stored.get_jobs_without_spec(conn, numbers) | stored.get_container_jobs(conn, numbers)
        devices = {device.uuid: device for node in self._fleet.nodes() for device in node.devices}
        machines = {
            (job_id, number): self._machine(job, devices)
            for job_id, number in waiting
            if (job := jobs.get(job_id)) and job.attempt == number
        }
        if machines:
            self._store.write(lambda tx: self._write(tx, machines))
        nameless = {one for one, it in machines.items() if jobs[one[0]].spec.image and not it.image_digest}
        with self._lock:
            self._nameless = (self._nameless - waiting) | nameless
        return len(machines)

    def _write(self, tx: Transaction, machines: dict[tuple[JobId, int], AttemptEnvironment]) -> None:
        """The first word counts, unless it did not know what the image is."""
        later = {one: machine for one, machine in machines.items() if one in self._nameless}
        remove_attempt_environments(tx, [one for one, machine in later.items() if machine.image_digest])
        add_attempt_environments(tx, machines)

    def _machine(self, job: Job, devices: dict[str, Device]) -> AttemptEnvironment:
        nodes = tuple(dict.fromkeys(place.node for place in job.task_placements))
        names = tuple(devices[uuid].name for uuid in job.devices if uuid in devices)
        return AttemptEnvironment(
            nodes=nodes,
            gpus=names,
            driver=drivers[0] if names and (drivers := self._drivers(nodes)) else None,
            image_digest=find_image_digest(job.spec.image) or self._noted_digest(job),
            environment=job.environment,
            datasets=self._datasets.mounted_versions(job) if job.spec.mounts else (),
            heliostat=__version__,
        )

    def _drivers(self, names: Collection[str]) -> list[str]:
        return [node.driver for node in self._fleet.nodes() if node.name in names and node.driver]

    def _noted_digest(self, job: Job) -> str | None:
        """What the node has found the image to be; None: it is not there yet."""
        if job.spec.image is None:
            return None
        text = read_job_text(self._engine, job.id, f"checkpoints/{IMAGE_DIGEST_FILE}", 1000)
        return found[1] if (found := _DIGEST.match(text)) else None

    def _hear(self, changes: StoreChanges) -> None:
        started = [(event.job_id, event.attempt) for event in changes.events if event.state is JobState.RUNNING]
        over = (
            [(one.job_id, one.attempt) for one in changes.events if one.state in TERMINAL_STATES]
            if self._nameless
            else []
        )
        self._add([*started, *(one for one in over if one in self._nameless)])

    def _add(self, attempts: Collection[tuple[JobId, int]]) -> None:
        if not attempts:
            return
        with self._lock:
            self._waiting.update(attempts)
        self._woken.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._woken.wait()
            self._closing.wait(_GATHER_SECONDS)
            self._woken.clear()
            try:
                self.record()
            except Exception:
                log.exception("recording_failed")
