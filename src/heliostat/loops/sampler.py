"""Samples the usage of jobs and nodes every few seconds, and records the final usage reported by the engine."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.controller.controller import Controller
from heliostat.controller.node_inventory import NodeInventory
from heliostat.engines.contract import Engine, HasOwnQueue
from heliostat.loops.gpu_metrics import GpuMetricsReader, add_gpu_metrics
from heliostat.models import (
    DeviceSample,
    Job,
    Node,
    NodeState,
    SampleBatch,
    UsageSample,
    count_cards,
    job_id_of_attempt,
)
from heliostat.models.samples import CLUSTER_SUBJECT, job_power_subject, job_subject, node_subject, sample_values
from heliostat.store.database import Store
from heliostat.store.samples import SampleStore
from heliostat.store.usage import add_attempt_usage

_FLUSH_SECONDS = 60.0
_COMPACT_SECONDS = 600.0
_OFFSET_SECONDS = 0.05  # after the start of a step, so that no step gets two samples or none

_FINAL_USAGE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SamplerSources:
    engine: Engine
    node_inventory: NodeInventory
    controller: Controller
    gpu_metrics: GpuMetricsReader | None = None  # for an engine that does not sample GPUs


class Sampler:
    def __init__(self, sources: SamplerSources, samples: SampleStore, now: Callable[[], datetime]) -> None:
        self._sources, self._samples, self._now = sources, samples, now
        self._next_flush = time.monotonic() + _FLUSH_SECONDS
        self._next_compaction = self._next_flush
        self._loop = BackgroundLoop("sampler", self._round, samples.step_seconds, failure="sampling_failed")

    def start(self) -> None:
        self._loop.start_after_interval()

    def close(self) -> None:
        self._loop.close()
        self._samples.flush(self._now().timestamp())

    def take_sample(self) -> None:
        """Read and store one sample of everything."""
        batch, nodes = self._sources.engine.sample(), self._sources.node_inventory.nodes()
        active, pending = self._sources.controller.active_jobs_and_pending_count()
        if self._sources.gpu_metrics is not None:
            batch = add_gpu_metrics(batch, self._sources.gpu_metrics.readings(), nodes, active)
        total = cluster_values(nodes, active, pending, batch.nodes)
        self._samples.add(self._now().timestamp(), {CLUSTER_SUBJECT: total, **_rows(batch)})

    def _round(self) -> float:
        self.take_sample()
        self._maintain()
        return self._seconds_to_next()

    def _seconds_to_next(self) -> float:
        step = self._samples.step_seconds
        return step - self._now().timestamp() % step + _OFFSET_SECONDS

    def _maintain(self) -> None:
        clock, now = time.monotonic(), self._now().timestamp()
        if clock >= self._next_flush:
            self._next_flush = clock + _FLUSH_SECONDS
            self._samples.flush(now)
        if clock >= self._next_compaction:
            has_more = self._samples.compact(now)
            self._next_compaction = clock + (_FLUSH_SECONDS if has_more else _COMPACT_SECONDS)


def cluster_values(
    nodes: Iterable[Node], active: Iterable[Job], pending: int, samples: Mapping[str, UsageSample]
) -> Sequence[float | None]:
    """Total, allocated and used resources, in the order of CLUSTER_COLUMNS."""
    up = [node for node in nodes if node.state is not NodeState.DOWN]
    jobs = list(active)
    sampled = [samples[node.name] for node in up if node.name in samples]
    allocated = [(job.resources, job.placement.tasks) for job in jobs]
    return [
        sum(count_cards(node.devices) for node in up),
        sum(resources.cards * tasks for resources, tasks in allocated),
        _mean_utilisation(device for sample in sampled for device in sample.devices),
        sum(node.cpus for node in up),
        sum(resources.cpus * tasks for resources, tasks in allocated),
        _sum(sample.cpus for sample in sampled),
        sum(node.memory_mib for node in up),
        sum(resources.memory_mib * tasks for resources, tasks in allocated),
        _sum(sample.memory_mib for sample in sampled),
        pending,
        len(jobs),
    ]


def _rows(batch: SampleBatch) -> dict[str, Sequence[float | None]]:
    nodes = {node_subject(name): sample_values(sample) for name, sample in batch.nodes.items()}
    jobs = {
        job_subject(job_id_of_attempt(attempt_id)): sample_values(sample)
        for attempt_id, sample in batch.attempts.items()
    }
    power = {
        job_power_subject(job_id_of_attempt(attempt_id)): [watts, float(sample.is_power_measured)]
        for attempt_id, sample in batch.attempts.items()
        if (watts := sample.power_watts) is not None
    }
    return nodes | jobs | power


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean_utilisation(devices: Iterable[DeviceSample]) -> float | None:
    known = [device.utilisation for device in devices if device.utilisation is not None]
    return sum(known) / len(known) if known else None


class EngineUsageRecorder:
    """Records the usage of ended attempts in the background, once the engine's accounting reports it."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine, self._store = engine, store
        self._loop = BackgroundLoop(
            "final-usage", self._record_all, _FINAL_USAGE_SECONDS, failure="final_usage_not_recorded"
        )

    def start(self) -> None:
        """Does nothing with an engine without accounting."""
        if isinstance(self._engine, HasOwnQueue):
            self._loop.start_after_interval()

    def close(self) -> None:
        """The engine reports usage that is not acknowledged again to the next server."""
        self._loop.close()

    def record_usage(self) -> int:
        """Record what the engine reports now; return the number of reported attempts."""
        if not isinstance(self._engine, HasOwnQueue):
            return 0
        used = self._engine.final_usage()
        known = {attempt_id: usage for attempt_id, usage in used.items() if usage is not None}
        if known:
            self._store.write(lambda tx: add_attempt_usage(tx, known))
        self._engine.acknowledge_usage(used)
        return len(used)

    def _record_all(self) -> None:
        while self.record_usage() and not self._loop.is_closing:
            pass  # there may be more
