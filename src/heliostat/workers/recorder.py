"""Notes on which machines attempts run, so that people can see later what has changed. Nobody waits for it."""

import threading
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

import structlog

from heliostat import __version__
from heliostat.engines.contract import Engine, KnowsDriver
from heliostat.models import Device, Job, JobId, JobState
from heliostat.models.records import Machine, digest_in
from heliostat.store import jobs as stored
from heliostat.store.database import Changes, Store
from heliostat.store.job_records import add_machines, unrecorded_attempts
from heliostat.workers.fleet import Fleet

log = structlog.get_logger()
_GATHER_SECONDS = 0.5  # many starts share one commit
_LOOK_BACK = timedelta(minutes=10)  # what may have ended just before the server did


class Recorder:
    """Hears of starts from commits; what the last server left out is caught up with at the start."""

    def __init__(self, store: Store, engine: Engine, fleet: Fleet, now: Callable[[], datetime]) -> None:
        self._store, self._engine, self._fleet, self._now = store, engine, fleet, now
        self._waiting: set[tuple[JobId, int]] = set()
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        self._store.on_commit(self._hear)
        with self._store.read() as conn:
            self._add(unrecorded_attempts(conn, self._now() - _LOOK_BACK))
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
            jobs = stored.get_jobs(conn, {job_id for job_id, _ in waiting})
        devices = {device.uuid: device for node in self._fleet.nodes() for device in node.devices}
        machines = {
            (job_id, number): self._machine(job, devices)
            for job_id, number in waiting
            if (job := jobs.get(job_id)) and job.attempt == number
        }
        if machines:
            self._store.write(lambda tx: add_machines(tx, machines))
        return len(machines)

    def _machine(self, job: Job, devices: dict[str, Device]) -> Machine:
        nodes = tuple(dict.fromkeys(place.node for place in job.task_places))
        names = tuple(devices[uuid].name for uuid in job.devices if uuid in devices)
        knows = self._engine if names and isinstance(self._engine, KnowsDriver) else None
        return Machine(
            nodes=nodes,
            gpus=names,
            driver=knows.driver_version() if knows else None,
            image_digest=digest_in(job.spec.image),
            environment=job.environment,
            heliostat=__version__,
        )

    def _hear(self, changes: Changes) -> None:
        self._add([(event.job_id, event.attempt) for event in changes.events if event.state is JobState.RUNNING])

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
