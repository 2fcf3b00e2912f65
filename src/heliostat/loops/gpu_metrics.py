"""Usage of GPUs from Prometheus, for engines that cannot read the GPUs of their nodes (Slurm)."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.errors import EngineUnavailable
from heliostat.models import DeviceSample, Job, JobState, Node, SampleBatch, UsageSample
from heliostat.monitoring.http_queries import get_json

_FIELDS = {  # by metric of dcgm-exporter: the field of a sample, in the same unit, and its largest value
    "DCGM_FI_DEV_GPU_UTIL": ("utilisation", 100),
    "DCGM_FI_DEV_FB_USED": ("memory_mib", 1e8),
    "DCGM_FI_DEV_POWER_USAGE": ("power_watts", 1e5),
}
# Only the labels that are needed: an answer about many GPUs stays small. Parts of a GPU (MIG) have no utilisation.
# Prometheus sets the label `node`. All others come from the node, which must not report for GPUs of another one.
_QUERY = f'max by (__name__, node, gpu) ({{__name__=~"{"|".join(_FIELDS)}", GPU_I_ID=""}})'
_MAX_AGE_INTERVALS = 3


class GpuMetricsReader:
    """Reads in a thread of its own: a Prometheus that does not answer delays nothing."""

    def __init__(self, prometheus_url: str, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = f"{prometheus_url.rstrip('/')}/api/v1/query?{urlencode({'query': _QUERY})}"
        self._seconds, self._clock = seconds, clock
        self._read_at, self._readings = -math.inf, dict[str, DeviceSample]()
        self._loop = BackgroundLoop("gpu-metrics", self.refresh, seconds, failure="gpu_metrics_not_read")

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()

    def refresh(self) -> None:
        answer = get_json(self._url)
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise EngineUnavailable("Prometheus does not answer.", "Check monitoring.prometheus_url.")
        self._readings, self._read_at = _device_samples(answer["data"]["result"]), self._clock()

    def readings(self) -> Mapping[str, DeviceSample]:
        """By `node:index`, as Slurm's engine names GPUs; empty if the newest answer is old."""
        is_old = self._clock() - self._read_at > _MAX_AGE_INTERVALS * self._seconds
        return {} if is_old else self._readings


def add_gpu_metrics(
    batch: SampleBatch, gpus: Mapping[str, DeviceSample], nodes: Iterable[Node], jobs: Iterable[Job]
) -> SampleBatch:
    """The samples with the usage of GPUs. Those without GPUs, and those of which nothing is known, stay.

    Nothing is known of a node with MIG slices: Slurm counts slices, dcgm-exporter counts cards.
    """
    node_samples, attempts = dict(batch.nodes), dict(batch.attempts)
    whole = [node for node in nodes if all(device.card_fraction == 1 for device in node.devices)]
    gpus = {device.uuid: gpus[device.uuid] for node in whole for device in node.devices if device.uuid in gpus}
    for node in whole:
        devices = tuple(gpus.get(device.uuid, DeviceSample()) for device in node.devices)
        if any(device.uuid in gpus for device in node.devices):
            node_samples[node.name] = replace(node_samples.get(node.name, UsageSample()), devices=devices)
    for job in jobs:
        uuids = [uuid for place in job.task_placements for uuid in place.devices]
        if job.state is JobState.RUNNING and any(uuid in gpus for uuid in uuids):
            devices = tuple(gpus.get(uuid, DeviceSample()) for uuid in uuids)
            attempts[job.attempt_id] = replace(attempts.get(job.attempt_id, UsageSample()), devices=devices)
    return SampleBatch(attempts, node_samples)


def _device_samples(series: Iterable[dict[str, Any]]) -> dict[str, DeviceSample]:
    found: dict[str, DeviceSample] = {}
    for one in series:
        labels = one["metric"]
        field, maximum = _FIELDS[labels["__name__"]]
        values: dict[str, Any] = {field: _number(one["value"][1], maximum)}
        key = f"{labels.get('node')}:{labels.get('gpu')}"
        found[key] = replace(found.get(key, DeviceSample()), **values)
    return found


def _number(text: str, maximum: float) -> float | None:
    value = float(text)
    return value if 0 <= value <= maximum else None
