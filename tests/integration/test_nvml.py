"""The NVML reader in a process of its own, against a driver library that does what a test tells it."""

import ctypes
import getpass
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.nvml.build import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    LIB_RM_VERSION_MISMATCH,
    UNKNOWN,
    FakeNvml,
    gpu,
    mig_slice,
    split_gpu,
    why_not,
)

READER = """
import dataclasses, json, sys
from heliostat.engines.local import nvml
from heliostat.engines.local.gpus import find_gpus, mark_used_outside

nvml.RETRY_SECONDS = 0.0  # connect again at once, not in a minute
gpus = find_gpus()
for line in sys.stdin:
    request = json.loads(line)
    devices = gpus.read(**request["read"])
    devices = mark_used_outside(devices, lambda pid: pid in request["ours"])
    answer = {"note": gpus.note, "devices": [dataclasses.asdict(device) for device in devices]}
    print(json.dumps(answer), flush=True)
"""


class Reader:
    """A running process that sees the fake driver, and reads when asked."""

    def __init__(self, fake: FakeNvml) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", READER],
            env=fake.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.note: str | None = None

    def read(self, ours: tuple[int, ...] = (), **arguments: float) -> list[dict[str, Any]]:
        assert self.child.stdin
        assert self.child.stdout
        self.child.stdin.write(json.dumps({"ours": ours, "read": arguments}) + "\n")
        self.child.stdin.flush()
        answer = json.loads(self.child.stdout.readline())
        self.note = answer["note"]
        return list(answer["devices"])

    def close(self) -> None:
        self.child.kill()
        self.child.communicate()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    if reason := why_not():
        pytest.skip(reason)
    return FakeNvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake(built: FakeNvml) -> FakeNvml:
    built.show()
    return built


@pytest.fixture
def start(fake: FakeNvml) -> Iterator[Callable[[], Reader]]:
    readers: list[Reader] = []

    def start_reader() -> Reader:
        readers.append(Reader(fake))
        return readers[-1]

    yield start_reader
    for reader in readers:
        reader.close()


Start = Callable[[], Reader]


def test_several_gpus_are_read_with_all_facts(fake: FakeNvml, start: Start) -> None:
    fake.show(
        gpu("GPU-a", utilisation=97, temperature=64, memory_used_mib=40000),
        gpu("GPU-b", "NVIDIA GeForce RTX 3090", memory_mib=24576),
    )
    reader = start()
    first, second = reader.read()
    assert reader.note is None
    assert (first["uuid"], first["index"], first["type"]) == ("GPU-a", 0, "A100")
    assert (first["memory_mib"], first["memory_used_mib"]) == (81920, 40000)
    assert (first["utilisation"], first["temperature"]) == (97, 64)
    assert (second["uuid"], second["index"], second["type"]) == ("GPU-b", 1, "RTX-3090")
    assert first["problem"] is second["problem"] is None


def test_what_a_gpu_does_not_support_is_no_problem(fake: FakeNvml, start: Start) -> None:
    fake.show({"uuid": "GPU-a", "name": "NVIDIA GeForce GTX 1080 Ti", "memory_mib": 11264})
    [device] = start().read()
    assert device["problem"] is None
    assert device["utilisation"] is device["temperature"] is None
    assert (device["type"], device["memory_mib"]) == ("GTX-1080-Ti", 11264)


def test_an_old_driver_is_asked_in_its_own_words(fake: FakeNvml, start: Start) -> None:
    old = {
        "nvmlDeviceGetMemoryInfo_v2": FUNCTION_NOT_FOUND,
        "nvmlDeviceGetComputeRunningProcesses_v3": FUNCTION_NOT_FOUND,
    }
    fake.show(gpu("GPU-a", processes="1:7"), **old)
    [device] = start().read()
    assert (device["problem"], device["memory_mib"]) == (None, 81920)
    assert [process["pid"] for process in device["processes"]] == [1]


def test_a_foreign_process_is_named_with_its_owner_and_ours_is_not(fake: FakeNvml, start: Start) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        fake.show(gpu("GPU-a", processes=f"{sleeper.pid}:512"), gpu("GPU-b"))
        reader = start()
        first, second = reader.read()
        me = getpass.getuser()
        assert first["used_outside"] == f"in use outside the queue by {me}: sleep (pid {sleeper.pid})"
        assert first["processes"][0]["memory_mib"] == 512
        assert second["used_outside"] is None
        assert reader.read(ours=(sleeper.pid,))[0]["used_outside"] is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_more_processes_than_a_first_guess_are_all_read(fake: FakeNvml, start: Start) -> None:
    fake.show(gpu("GPU-a", processes=" ".join(f"{pid}:1" for pid in range(1, 61))))
    [device] = start().read()
    assert len(device["processes"]) == 60


def test_a_running_reader_sees_changes(fake: FakeNvml, start: Start) -> None:
    fake.show(gpu("GPU-a"))
    reader = start()
    assert reader.read()[0]["utilisation"] == 0
    fake.show(gpu("GPU-a", utilisation=50, ecc=1), gpu("GPU-b"))
    first, second = reader.read()
    assert first["utilisation"] == 50
    assert "an uncorrected memory (ECC) error" in first["problem"]
    assert second["uuid"] == "GPU-b"


def test_a_lost_gpu_keeps_its_last_known_facts(fake: FakeNvml, start: Start) -> None:
    fake.show(gpu("GPU-a"), gpu("GPU-b", utilisation=80))
    reader = start()
    reader.read()
    fake.show(gpu("GPU-a"), gpu("GPU-b", error=GPU_IS_LOST))
    first, second = reader.read()
    assert first["problem"] is None
    assert "fallen off the bus" in second["problem"]
    assert (second["uuid"], second["type"], second["memory_mib"]) == ("GPU-b", "A100", 81920)
    assert second["utilisation"] is None
    fake.show(gpu("GPU-a"), gpu("GPU-b"))
    assert [device["problem"] for device in reader.read()] == [None, None]


def test_a_gpu_lost_from_the_start_is_listed_until_it_can_be_read(fake: FakeNvml, start: Start) -> None:
    fake.show(gpu("GPU-a", error=GPU_IS_LOST), gpu("GPU-b"))
    reader = start()
    first, second = reader.read()
    assert "fallen off the bus" in first["problem"]
    assert (first["index"], second["uuid"], second["problem"]) == (0, "GPU-b", None)
    fake.show(gpu("GPU-a"), gpu("GPU-b"))
    assert [device["uuid"] for device in reader.read()] == ["GPU-a", "GPU-b"]


def test_a_gpu_that_disappears_stays_listed(fake: FakeNvml, start: Start) -> None:
    fake.show(gpu("GPU-a"), gpu("GPU-b"))
    reader = start()
    reader.read()
    fake.show(gpu("GPU-a"))
    first, second = reader.read()
    assert first["problem"] is None
    assert (second["uuid"], second["type"]) == ("GPU-b", "A100")
    assert "no longer lists" in second["problem"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"ecc": 3}, "3 uncorrected memory (ECC) errors"),
        ({"remap_failed": 1}, "replace the card"),
        ({"remap_pending": 1}, "row remapping) waits for a reboot"),
        ({"pages_pending": 1}, "page retirement) waits for a reboot"),
        ({"mig": 1}, "MIG mode is on, but there is no MIG slice"),
        ({"nvmlDeviceGetTemperature": UNKNOWN}, "cannot be read (Unknown Error)"),
        ({"nvmlDeviceGetComputeRunningProcesses_v3": GPU_IS_LOST}, "fallen off the bus"),
    ],
)
def test_a_sick_gpu_says_what_it_has(fake: FakeNvml, start: Start, facts: dict[str, int], words: str) -> None:
    fake.show(gpu("GPU-a", **facts), gpu("GPU-b"))
    sick, healthy = start().read()
    assert words in sick["problem"]
    assert sick["type"] == "A100"
    assert healthy["problem"] is None


def test_a_split_gpu_is_its_slices(fake: FakeNvml, start: Start) -> None:
    three = mig_slice("MIG-b", "3g.40gb+me", memory_mib=40192, memory_used_mib=900)
    fake.show(gpu("GPU-a"), split_gpu("GPU-b", {1: mig_slice("MIG-a"), 4: three}, temperature=55, minor=6))
    whole, first, second = start().read()
    assert (whole["uuid"], whole["type"], whole["slice_index"], whole["card_uuid"]) == (
        "GPU-a",
        "A100",
        None,
        None,
    )
    assert (first["uuid"], first["type"], first["index"], first["slice_index"]) == ("MIG-a", "A100-1g.10gb", 1, 1)
    assert (second["uuid"], second["type"], second["index"], second["slice_index"]) == (
        "MIG-b",
        "A100-3g.40gb",
        1,
        4,
    )
    assert (second["memory_mib"], second["memory_used_mib"]) == (40192, 900)
    assert first["card_uuid"] == second["card_uuid"] == "GPU-b"
    assert first["problem"] is second["problem"] is first["utilisation"] is None
    assert first["temperature"] == 55  # of the card
    assert (whole["files"], first["files"]) == (["/dev/nvidia0"], ["/dev/nvidia6"])


def test_a_process_on_a_slice_concerns_no_other_slice(fake: FakeNvml, start: Start) -> None:
    fake.show(split_gpu("GPU-a", {0: mig_slice("MIG-a", processes="1:700"), 1: mig_slice("MIG-b")}))
    first, second = start().read()
    assert (first["processes"][0]["pid"], first["processes"][0]["memory_mib"]) == (1, 700)
    assert "in use outside the queue" in first["used_outside"]
    assert second["used_outside"] is None


def test_a_sick_card_makes_all_its_slices_unavailable(fake: FakeNvml, start: Start) -> None:
    slices = {0: mig_slice("MIG-a"), 1: mig_slice("MIG-b")}
    fake.show(split_gpu("GPU-a", slices, ecc=1), gpu("GPU-b"))
    reader = start()
    first, second, other = reader.read()
    assert "memory (ECC) error" in first["problem"]
    assert first["problem"] == second["problem"]
    assert other["problem"] is None
    fake.show({**split_gpu("GPU-a", slices), "error": GPU_IS_LOST}, gpu("GPU-b"))
    first, second, other = reader.read()
    assert [first["uuid"], second["uuid"], other["uuid"]] == ["MIG-a", "MIG-b", "GPU-b"]
    assert "fallen off the bus" in first["problem"]
    assert first["problem"] == second["problem"]


def test_a_slice_that_cannot_be_read_concerns_no_other_slice(fake: FakeNvml, start: Start) -> None:
    fake.show(split_gpu("GPU-a", {0: mig_slice("MIG-a"), 1: mig_slice("MIG-b")}))
    reader = start()
    reader.read()
    fake.show(split_gpu("GPU-a", {0: mig_slice("MIG-a", nvmlDeviceGetName=UNKNOWN), 1: mig_slice("MIG-b")}))
    first, second = reader.read()
    assert (first["uuid"], first["type"]) == ("MIG-a", "A100-1g.10gb")  # as it was known before
    assert "cannot be read" in first["problem"]
    assert second["problem"] is None


def test_a_slice_with_an_unknown_profile_is_not_used(fake: FakeNvml, start: Start) -> None:
    fake.show(split_gpu("GPU-a", {0: mig_slice("MIG-a", "huge")}))
    assert start().read()[0]["problem"] == "its MIG profile is unknown"


def test_a_gpu_is_split_and_made_whole_while_the_server_runs(fake: FakeNvml, start: Start) -> None:
    fake.show(gpu("GPU-a"), gpu("GPU-b"))
    reader = start()

    def uuids() -> list[str]:
        devices = reader.read()
        assert not any(device["problem"] for device in devices)
        return [device["uuid"] for device in devices]

    assert uuids() == ["GPU-a", "GPU-b"]
    fake.show(split_gpu("GPU-a", {0: mig_slice("MIG-a"), 1: mig_slice("MIG-b")}), gpu("GPU-b"))
    assert uuids() == ["MIG-a", "MIG-b", "GPU-b"]
    fake.show(split_gpu("GPU-a", {0: mig_slice("MIG-c", "7g.80gb")}), gpu("GPU-b"))
    assert uuids() == ["MIG-c", "GPU-b"]
    fake.show(gpu("GPU-a"), gpu("GPU-b"))
    assert uuids() == ["GPU-a", "GPU-b"]


def test_the_slices_of_a_card_that_disappears_stay_listed(fake: FakeNvml, start: Start) -> None:
    fake.show(gpu("GPU-a"), split_gpu("GPU-b", {0: mig_slice("MIG-a"), 1: mig_slice("MIG-b")}))
    reader = start()
    reader.read()
    fake.show(gpu("GPU-a"))
    assert ["no longer lists" in (device["problem"] or "") for device in reader.read()] == [False, True, True]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (DRIVER_NOT_LOADED, "kernel driver is not loaded"),
        (LIB_RM_VERSION_MISMATCH, "reboot this machine"),
        (UNKNOWN, "driver fails (Unknown Error)"),
    ],
)
def test_a_driver_that_does_not_talk_says_why_and_is_tried_again(
    fake: FakeNvml, start: Start, code: int, words: str
) -> None:
    fake.show(gpu("GPU-a"), nvmlInitWithFlags=code)
    reader = start()
    assert reader.read() == []
    assert reader.note
    assert words in reader.note
    fake.show(gpu("GPU-a"))
    assert [device["uuid"] for device in reader.read()] == ["GPU-a"]
    assert reader.note is None


def test_a_driver_that_fails_later_leaves_the_gpus_listed(fake: FakeNvml, start: Start) -> None:
    fake.show(gpu("GPU-a"))
    reader = start()
    reader.read()
    fake.show(gpu("GPU-a"), nvmlDeviceGetCount_v2=UNKNOWN, nvmlShutdown=UNKNOWN)
    [device] = reader.read()
    assert (device["uuid"], device["type"]) == ("GPU-a", "A100")
    assert "driver fails" in device["problem"]
    fake.show(gpu("GPU-a"))
    assert reader.read()[0]["problem"] is None


def test_a_driver_that_hangs_does_not_hang_the_reader(fake: FakeNvml, start: Start) -> None:
    fake.show(gpu("GPU-a"))
    reader = start()
    reader.read()
    fake.show(gpu("GPU-a"), hang=1)
    [device] = reader.read(timeout_seconds=0.3)
    assert "does not answer" in device["problem"]
    fake.show(gpu("GPU-a", utilisation=5))
    wait_for(lambda: reader.read()[0]["problem"] is None)


def test_a_machine_without_a_driver_says_so(tmp_path: Path) -> None:
    if has_real_driver():
        pytest.skip("this machine has a real NVIDIA driver")
    reader = Reader(FakeNvml(tmp_path))  # nothing is built there
    try:
        assert reader.read() == []
        assert "restart Heliostat" in (reader.note or "")
    finally:
        reader.close()


def has_real_driver() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
