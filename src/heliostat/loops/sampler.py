"""Looks every few seconds at what jobs and nodes use, and keeps it; and what the engine accounts for later."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.controller.controller import Controller
from heliostat.controller.node_inventory import NodeInventory
from heliostat.engines.contract import Engine, HasOwnQueue
from heliostat.models import DeviceSample, Job, Node, NodeState, SampleBatch, UsageSample, job_id_of_attempt
from heliostat.models.samples import CLUSTER_SUBJECT, job_subject, node_subject, sample_values
from heliostat.store.database import Store
from heliostat.store.samples import SampleStore
from heliostat.store.usage import add_attempt_usage

_FLUSH_SECONDS = 60.0
_TIDY_SECONDS = 600.0
_LATE_SECONDS = 0.05  # behind the beginning of a step, lest a hasty clock puts two into one and none into the next

_ACCOUNTS_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SamplerSources:
    engine: Engine
    node_inventory: NodeInventory
    controller: Controller


class Sampler:
    def __init__(self, watched: SamplerSources, samples: SampleStore, now: Callable[[], datetime]) -> None:
        self._watched, self._samples, self._now = watched, samples, now
        self._next_flush = time.monotonic() + _FLUSH_SECONDS
        self._next_tidy = self._next_flush
        self._loop = BackgroundLoop("sampler", self._round, samples.step_seconds, failure="sampling_failed")

    def start(self) -> None:
        self._loop.start_after_interval()

    def close(self) -> None:
        self._loop.close()
        self._samples.flush(self._now().timestamp())

    def take_sample(self) -> None:
        """One round: read everything, keep it."""
        readings = self._watched.engine.sample()
        active, pending = self._watched.controller.active_jobs_and_pending_count()
        total = cluster_values(self._watched.node_inventory.nodes(), active, pending, readings.nodes)
        self._samples.add(self._now().timestamp(), {CLUSTER_SUBJECT: total, **_rows(readings)})

    def _round(self) -> float:
        self.take_sample()
        self._keep_house()
        return self._seconds_to_next()

    def _seconds_to_next(self) -> float:
        step = self._samples.step_seconds
        return step - self._now().timestamp() % step + _LATE_SECONDS

    def _keep_house(self) -> None:
        clock, now = time.monotonic(), self._now().timestamp()
        if clock >= self._next_flush:
            self._next_flush = clock + _FLUSH_SECONDS
            self._samples.flush(now)
        if clock >= self._next_tidy:
            has_more = self._samples.compact(now)
            self._next_tidy = clock + (_FLUSH_SECONDS if has_more else _TIDY_SECONDS)


def cluster_values(
    nodes: Iterable[Node], active: Iterable[Job], pending: int, readings: Mapping[str, UsageSample]
) -> Sequence[float | None]:
    """What there is, what is given out and what is used, in the order of CLUSTER_COLUMNS."""
    up = [node for node in nodes if node.state is not NodeState.DOWN]
    jobs = list(active)
    read = [readings[node.name] for node in up if node.name in readings]
    held = [(job.resources, job.placement.tasks) for job in jobs]
    return [
        sum(len(node.devices) for node in up),
        sum(wanted.gpus * tasks for wanted, tasks in held),
        _mean_utilisation(device for reading in read for device in reading.devices),
        sum(node.cpus for node in up),
        sum(wanted.cpus * tasks for wanted, tasks in held),
        _sum(reading.cpus for reading in read),
        sum(node.memory_mib for node in up),
        sum(wanted.memory_mib * tasks for wanted, tasks in held),
        _sum(reading.memory_mib for reading in read),
        pending,
        len(jobs),
    ]


def _rows(readings: SampleBatch) -> dict[str, Sequence[float | None]]:
    nodes = {node_subject(name): sample_values(reading) for name, reading in readings.nodes.items()}
    jobs = {
        job_subject(job_id_of_attempt(attempt_id)): sample_values(reading)
        for attempt_id, reading in readings.attempts.items()
    }
    return nodes | jobs


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean_utilisation(devices: Iterable[DeviceSample]) -> float | None:
    known = [device.utilisation for device in devices if device.utilisation is not None]
    return sum(known) / len(known) if known else None


class EngineUsageRecorder:
    """Records what ended attempts have used, once the engine's accounting knows. Nobody waits for it."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine, self._store = engine, store
        self._loop = BackgroundLoop(
            "accountant", self._look_at_all, _ACCOUNTS_SECONDS, failure="accounting_failed"
        )

    def start(self) -> None:
        """Does nothing with an engine that keeps no accounts."""
        if isinstance(self._engine, HasOwnQueue):
            self._loop.start_after_interval()

    def close(self) -> None:
        """What is not recorded yet is told again to the next server."""
        self._loop.close()

    def record_usage(self) -> int:
        """Record what is known by now; of how many attempts there was something to say."""
        if not isinstance(self._engine, HasOwnQueue):
            return 0
        used = self._engine.final_usage()
        known = {attempt_id: usage for attempt_id, usage in used.items() if usage is not None}
        if known:
            self._store.write(lambda tx: add_attempt_usage(tx, known))
        self._engine.acknowledge_usage(used)
        return len(used)

    def _look_at_all(self) -> None:
        while self.record_usage() and not self._loop.is_closing:
            pass  # there may be more
