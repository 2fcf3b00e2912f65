"""Records nodes, GPUs, drivers and images of attempts in the background, for comparisons and reruns."""

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
_BATCH_SECONDS = 1.0  # many starts share one commit
_DIGEST = re.compile(r'".*?(sha256:[0-9a-f]{64})', re.S)  # otherwise the file contains a failure reason
_LOOK_BACK = timedelta(minutes=10)  # attempts may have ended just before the server stopped


@dataclass(frozen=True, slots=True)
class ProvenanceSources:
    """Dependencies of the recorder."""

    store: Store
    engine: Engine
    node_inventory: NodeInventory


class ProvenanceRecorder:
    """Finds started attempts in commits, and at the start those that an earlier server has not recorded."""

    def __init__(
        self, sources: ProvenanceSources, containers: ContainerSettings, now: Callable[[], datetime]
    ) -> None:
        self._store, self._engine, self._node_inventory = sources.store, sources.engine, sources.node_inventory
        self._now = now
        self._datasets = DatasetVersions(containers.mount_paths)
        self._without_digest: set[tuple[JobId, int]] = set()  # attempts whose image digest is unknown
        self._waiting: set[tuple[JobId, int]] = set()
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="provenance-recorder", daemon=True)

    def start(self) -> None:
        self._store.on_commit(self._on_commit)
        with self._store.read() as conn:
            self._add(list_attempts_without_environment(conn, self._now() - _LOOK_BACK))
            numbers = [job.id for job in stored.list_unfinished_jobs(conn) if job.attempt]
            running = [job for job in stored.get_container_jobs(conn, numbers).values() if job.spec.image]
            self._without_digest |= {
                (job.id, job.attempt) for job in running if lacks_image_digest(conn, job.id, job.attempt)
            }
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def record(self) -> int:
        """Record what is known now; return the number of attempts."""
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        if not waiting:
            return 0
        with self._store.read() as conn:
            numbers = {job_id for job_id, _ in waiting}
            jobs = stored.get_jobs_without_spec(conn, numbers) | stored.get_container_jobs(conn, numbers)
        devices = {device.uuid: device for node in self._node_inventory.nodes() for device in node.devices}
        recorded = {
            (job_id, number): self._environment(job, devices)
            for job_id, number in waiting
            if (job := jobs.get(job_id)) and job.attempt == number
        }
        if recorded:
            self._store.write(lambda tx: self._write(tx, recorded))
        without_digest = {
            attempt
            for attempt, environment in recorded.items()
            if jobs[attempt[0]].spec.image and not environment.image_digest
        }
        with self._lock:
            self._without_digest = (self._without_digest - waiting) | without_digest
        return len(recorded)

    def _write(self, tx: Transaction, recorded: dict[tuple[JobId, int], AttemptEnvironment]) -> None:
        """The first record of an attempt stays, unless its image digest was unknown."""
        completed = [
            attempt
            for attempt, environment in recorded.items()
            if attempt in self._without_digest and environment.image_digest
        ]
        remove_attempt_environments(tx, completed)
        add_attempt_environments(tx, recorded)

    def _environment(self, job: Job, devices: dict[str, Device]) -> AttemptEnvironment:
        nodes = tuple(dict.fromkeys(place.node for place in job.task_placements))
        names = tuple(devices[uuid].name for uuid in job.devices if uuid in devices)
        return AttemptEnvironment(
            nodes=nodes,
            gpus=names,
            driver=drivers[0] if names and (drivers := self._drivers(nodes)) else None,
            image_digest=find_image_digest(job.spec.image) or self._recorded_digest(job),
            environment=job.environment,
            datasets=self._datasets.mounted_versions(job) if job.spec.mounts else (),
            heliostat=__version__,
        )

    def _drivers(self, names: Collection[str]) -> list[str]:
        return [node.driver for node in self._node_inventory.nodes() if node.name in names and node.driver]

    def _recorded_digest(self, job: Job) -> str | None:
        """The digest of the image that the node has fetched; None: not known yet."""
        if job.spec.image is None:
            return None
        text = read_job_text(self._engine, job.id, f"checkpoints/{IMAGE_DIGEST_FILE}", 1000)
        return match[1] if (match := _DIGEST.match(text)) else None

    def _on_commit(self, changes: StoreChanges) -> None:
        started = [(event.job_id, event.attempt) for event in changes.events if event.state is JobState.RUNNING]
        ended = (
            [(event.job_id, event.attempt) for event in changes.events if event.state in TERMINAL_STATES]
            if self._without_digest
            else []
        )
        self._add([*started, *(attempt for attempt in ended if attempt in self._without_digest)])

    def _add(self, attempts: Collection[tuple[JobId, int]]) -> None:
        if not attempts:
            return
        with self._lock:
            self._waiting.update(attempts)
        self._woken.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._woken.wait()
            self._closing.wait(_BATCH_SECONDS)
            self._woken.clear()
            try:
                self.record()
            except Exception:
                log.exception("provenance_recording_failed")
