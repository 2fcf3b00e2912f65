"""Availability of GPUs, from the processes that the driver and /proc list."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heliostat.engines.local import gpu_monitor as module
from heliostat.engines.local.gpu_monitor import GpuMonitor
from heliostat.models import Device, DeviceProcess
from support.waiting import wait_until

Spawn = Callable[[str | None], int]
INSTANCE = "ab12cd34"


class ScriptedGpus:
    """Lists the processes that the test sets."""

    note = None

    def __init__(self) -> None:
        self.pids: dict[str, list[int]] = {"a": [], "b": []}

    def read(self) -> list[Device]:
        return [
            Device(uuid, index, "A100", "A100", 80000, processes=tuple(map(DeviceProcess, pids)))
            for index, (uuid, pids) in enumerate(self.pids.items())
        ]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> ScriptedGpus:
    scripted = ScriptedGpus()
    monkeypatch.setattr(module, "find_gpus", lambda simulate: scripted)
    return scripted


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts a process with the mark of this attempt, or without a mark.

    Waits until its environment is readable: it is empty for a moment during the exec.
    """
    processes: list[subprocess.Popen[bytes]] = []

    def start(attempt_id: str | None) -> int:
        mark = {} if attempt_id is None else {"HELIOSTAT_MARK": f"{INSTANCE}-{attempt_id}"}
        process = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], **mark})
        processes.append(process)
        wait_until(lambda: Path(f"/proc/{process.pid}/environ").read_bytes(), "the process has an environment")
        return process.pid

    yield start
    for process in processes:
        process.kill()
        process.wait()


def devices(holders: dict[str, list[str]]) -> GpuMonitor:
    made = GpuMonitor(None, INSTANCE, lambda: holders, release_seconds=0.05)
    made.close()
    return made


def test_attempts_that_hold_a_device_may_share_it(gpus: ScriptedGpus, spawn: Spawn) -> None:
    gpus.pids["a"] = [spawn("1.1"), spawn("2.1")]
    assert devices({"a": ["1.1", "2.1"]}).unavailable_reason(["a"]) is None


def test_a_process_of_an_attempt_that_does_not_hold_the_device_keeps_it_out_of_use(
    gpus: ScriptedGpus, spawn: Spawn
) -> None:
    pid = spawn("12.1")
    gpus.pids["a"] = [spawn("2.1"), pid]
    found = devices({"a": ["2.1"], "b": ["12.1"]})
    assert found.unavailable_reason(["a"]) == f"GPU 0: not free: process {pid} of job 12 still uses it"
    assert found.unavailable_reason(["b"]) is None


def test_another_attempt_of_the_same_job_is_another(gpus: ScriptedGpus, spawn: Spawn) -> None:
    gpus.pids["a"] = [spawn("12.1")]
    assert "of job 12 still uses it" in str(devices({"a": ["12.2"]}).unavailable_reason(["a"]))


def test_a_process_outside_the_queue_is_reported(gpus: ScriptedGpus, spawn: Spawn) -> None:
    gpus.pids["a"] = [spawn(None)]
    assert "in use outside the queue" in str(devices({}).unavailable_reason(["a"]))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can distinguish ended from hidden processes")
def test_an_ended_process_counts_as_one_of_the_job_that_runs_there(gpus: ScriptedGpus) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    gpus.pids = {"a": [dead.pid], "b": [dead.pid]}
    found = devices({"a": ["1.1"]})
    assert found.unavailable_reason(["a"]) is None
    assert f"process {dead.pid} of an earlier job" in str(found.unavailable_reason(["b"]))


def test_devices_are_released_when_no_process_of_the_attempt_is_listed(gpus: ScriptedGpus, spawn: Spawn) -> None:
    gpus.pids["a"] = [spawn("1.1")]
    found = devices({"a": ["1.1"]})
    assert found.wait_until_released("2.1", ["a"])
    assert not found.wait_until_released("1.1", ["a"])
    gpus.pids["a"] = []
    assert found.wait_until_released("1.1", ["a"])


def test_a_change_of_availability_is_reported_once(gpus: ScriptedGpus, spawn: Spawn) -> None:
    found = devices({})
    reports: list[None] = []
    found.on_change(lambda: reports.append(None))
    gpus.pids["a"] = [spawn("1.1")]
    found.unavailable_reason(["a"])
    found.unavailable_reason(["a"])
    assert len(reports) == 1


def test_the_memory_is_that_of_the_device(gpus: ScriptedGpus) -> None:
    assert devices({}).memory_mib(["b"]) == 80000
    assert devices({}).memory_mib([]) is None
