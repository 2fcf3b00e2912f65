"""Which devices may be handed out, for processes of which only the driver and /proc tell."""

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from heliostat.engines.local import gpu_monitor as module
from heliostat.engines.local.gpu_monitor import GpuMonitor
from heliostat.models import Device, DeviceProcess

Spawn = Callable[[str | None], int]
INSTANCE = "ab12cd34"


class TellingGpus:
    """Says what it is told to say."""

    note = None

    def __init__(self) -> None:
        self.pids: dict[str, list[int]] = {"a": [], "b": []}

    def read(self) -> list[Device]:
        return [
            Device(uuid, index, "A100", "A100", 80000, processes=tuple(map(DeviceProcess, pids)))
            for index, (uuid, pids) in enumerate(self.pids.items())
        ]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> TellingGpus:
    telling = TellingGpus()
    monkeypatch.setattr(module, "find_gpus", lambda simulate: telling)
    return telling


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts a process with the mark of this attempt, or a stranger."""
    made: list[subprocess.Popen[bytes]] = []

    def start(attempt_id: str | None) -> int:
        mark = {} if attempt_id is None else {"HELIOSTAT_MARK": f"{INSTANCE}-{attempt_id}"}
        made.append(subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], **mark}))
        return made[-1].pid

    yield start
    for process in made:
        process.kill()
        process.wait()


def devices(holders: dict[str, list[str]]) -> GpuMonitor:
    made = GpuMonitor(None, INSTANCE, lambda: holders, patience_seconds=0.05)
    made.close()
    return made


def test_those_it_was_given_to_may_share_a_device(gpus: TellingGpus, spawn: Spawn) -> None:
    gpus.pids["a"] = [spawn("1.1"), spawn("2.1")]
    assert devices({"a": ["1.1", "2.1"]}).unavailable_reason(["a"]) is None


def test_a_process_of_an_attempt_that_does_not_hold_the_device_keeps_it_out_of_use(
    gpus: TellingGpus, spawn: Spawn
) -> None:
    pid = spawn("12.1")
    gpus.pids["a"] = [spawn("2.1"), pid]
    found = devices({"a": ["2.1"], "b": ["12.1"]})
    assert found.unavailable_reason(["a"]) == f"GPU 0: not empty: process {pid} of job 12 has not left it"
    assert found.unavailable_reason(["b"]) is None


def test_another_attempt_of_the_same_job_is_another(gpus: TellingGpus, spawn: Spawn) -> None:
    gpus.pids["a"] = [spawn("12.1")]
    assert "of job 12 has not left it" in str(devices({"a": ["12.2"]}).unavailable_reason(["a"]))


def test_a_stranger_is_named_as_one(gpus: TellingGpus, spawn: Spawn) -> None:
    gpus.pids["a"] = [spawn(None)]
    assert "in use outside the queue" in str(devices({}).unavailable_reason(["a"]))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can tell the dead from the hidden")
def test_the_dead_are_taken_for_those_of_a_job_that_runs_there(gpus: TellingGpus) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    gpus.pids = {"a": [dead.pid], "b": [dead.pid]}
    found = devices({"a": ["1.1"]})
    assert found.unavailable_reason(["a"]) is None
    assert f"process {dead.pid} of an earlier job" in str(found.unavailable_reason(["b"]))


def test_devices_are_left_when_nothing_of_the_attempt_is_there(gpus: TellingGpus, spawn: Spawn) -> None:
    gpus.pids["a"] = [spawn("1.1")]
    found = devices({"a": ["1.1"]})
    assert found.wait_until_released("2.1", ["a"])
    assert not found.wait_until_released("1.1", ["a"])
    gpus.pids["a"] = []
    assert found.wait_until_released("1.1", ["a"])


def test_a_change_of_what_may_be_used_is_told_once(gpus: TellingGpus, spawn: Spawn) -> None:
    found = devices({})
    told: list[None] = []
    found.on_change(lambda: told.append(None))
    gpus.pids["a"] = [spawn("1.1")]
    found.unavailable_reason(["a"])
    found.unavailable_reason(["a"])
    assert len(told) == 1


def test_the_memory_is_that_of_the_device(gpus: TellingGpus) -> None:
    assert devices({}).memory_mib(["b"]) == 80000
    assert devices({}).memory_mib([]) is None
