"""The loop that looks at what is used."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from heliostat.loops.sampler import Sampler, SamplerSources, cluster_values
from heliostat.models import (
    Device,
    DeviceSample,
    Job,
    JobSpec,
    JobState,
    Node,
    NodeState,
    PlacementRequest,
    Resources,
    SampleBatch,
    UsageSample,
)
from heliostat.models.samples import CLUSTER_COLUMNS, CLUSTER_SUBJECT
from heliostat.store.samples import SampleStore
from support.waiting import wait_until

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
GPUS = tuple(Device(f"GPU-{n}", n, "A100", "A100", 81920) for n in range(2))
NODES = (Node("n1", 8, 1000, GPUS), Node("n2", 4, 500), Node("n3", 64, 9000, GPUS, NodeState.DOWN))


@dataclass
class Engine:
    readings: Callable[[], SampleBatch]
    looks: int = field(default=0)

    def sample(self) -> SampleBatch:
        self.looks += 1
        return self.readings()


def a_job(number: int, gpus: float, tasks: int = 1) -> Job:
    wanted, placement = Resources(2, 100, gpus), PlacementRequest(tasks=tasks)
    spec = JobSpec()
    return Job(number, "batch", "j", JobState.RUNNING, "a", "a", "p", wanted, spec, NOW, placement=placement)


def sampler(engine: Any, path: Path, step: int = 10) -> tuple[Sampler, SampleStore]:
    store = SampleStore(path / "samples.db", step)
    fleet = SimpleNamespace(nodes=lambda: NODES)
    controller = SimpleNamespace(active_jobs_and_pending_count=lambda: ([a_job(7, 1)], 3))
    watched = SamplerSources(engine, fleet, controller)  # type: ignore[arg-type]
    return Sampler(watched, store, lambda: datetime.now(UTC) if step < 10 else NOW), store


def test_the_cluster_is_the_sum_of_its_nodes_that_are_not_down() -> None:
    readings = {
        "n1": UsageSample(1.5, 300.0, (DeviceSample(80, 10), DeviceSample(None, None))),
        "n2": UsageSample(None, 50.0),
        "n3": UsageSample(9.0, 9.0, (DeviceSample(100, 10),)),
    }
    row = cluster_values(NODES, [a_job(1, 0.5), a_job(2, 1, tasks=2)], 5, readings)
    assert dict(zip((name for name, _ in CLUSTER_COLUMNS), row, strict=True)) == {
        "gpus": 2,
        "gpus_allocated": 2.5,
        "gpu_utilisation": 80,
        "cpus": 12,
        "cpus_allocated": 6,
        "cpus_used": 1.5,
        "memory": 1500,
        "memory_held": 300,
        "memory_used": 350,
        "pending": 5,
        "running": 2,
    }


def test_nothing_read_is_nothing_known() -> None:
    row = dict(zip((name for name, _ in CLUSTER_COLUMNS), cluster_values(NODES, [], 0, {}), strict=True))
    assert (row["gpu_utilisation"], row["cpus_used"], row["memory_used"]) == (None, None, None)
    assert row["gpus"] == 2


def test_attempts_of_a_job_are_kept_under_the_job(tmp_path: Path) -> None:
    answers = iter(
        [
            SampleBatch({"7.1": UsageSample(1.0, 10.0)}, {"n1": UsageSample(2.0, 20.0)}),
            SampleBatch({"7.2": UsageSample(3.0, 30.0)}),
        ]
    )
    worker, store = sampler(Engine(lambda: next(answers)), tmp_path)
    worker.take_sample()
    assert [store.read(name, 0, 1e12)[0].mean[0, 0] for name in ("job/7", "node/n1", CLUSTER_SUBJECT)] == [
        1.0,
        2.0,
        2.0,
    ]
    store.close()


def test_it_goes_on_after_a_failure_and_says_so_once(tmp_path: Path) -> None:
    def fail() -> SampleBatch:
        raise RuntimeError("the driver is on fire")

    engine = Engine(fail)
    worker, store = sampler(engine, tmp_path, step=1)
    with capture_logs() as logs:
        worker.start()
        wait_until(lambda: engine.looks >= 2, "it looks again")
        worker.close()
    assert [entry["event"] for entry in logs] == ["sampling_failed"]
    assert store.read("job/7", 0, 1e12) == []


def test_what_was_seen_last_is_written_when_it_stops(tmp_path: Path) -> None:
    worker, _ = sampler(Engine(lambda: SampleBatch({"7.1": UsageSample(1.0, 10.0)})), tmp_path)
    worker.take_sample()
    worker.close()
    again = SampleStore(tmp_path / "samples.db")
    assert again.read("job/7", 0, 1e12)[0].mean[0].tolist() == pytest.approx([1.0, 10.0], rel=0.001)
    again.close()


def test_the_power_of_the_gpus_of_a_job_is_kept_apart(tmp_path: Path) -> None:
    devices = (DeviceSample(90, 100, 300.0), DeviceSample(None, None, None), DeviceSample(0, 4, 50.0))
    batch = SampleBatch({"1.1": UsageSample(1.0, 10.0, devices), "2.1": UsageSample(1.0, 10.0)})
    looking, store = sampler(Engine(lambda: batch), tmp_path)
    looking.take_sample()
    (chunk,) = store.read("job-power/1", 0, 1e12)
    assert chunk.mean.tolist() == [[350.0, 0.0]]
    assert store.read("job-power/2", 0, 1e12) == []
    (chunk,) = store.read("job/1", 0, 1e12)
    assert chunk.mean.shape == (1, 8)
