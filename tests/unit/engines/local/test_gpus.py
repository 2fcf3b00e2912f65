import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.local import gpus as gpus_module
from heliostat.engines.local.gpus import (
    DriverGpus,
    SimulatedGpus,
    add_missing_devices,
    find_gpus,
    mark_used_outside,
    parse_simulated_gpus,
    unreadable_device,
)
from heliostat.engines.local.nvml import capability_minor, short_gpu_type
from heliostat.engines.local.process_names import process_program_name, process_user
from heliostat.errors import Invalid
from heliostat.models import count_cards
from heliostat.models.nodes import Device, DeviceProcess


def a100(index: int = 0, **facts: object) -> Device:
    return Device(f"GPU-{index}", index, "A100", "NVIDIA A100-SXM4-80GB", 81920, **facts)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("A100-PCIE-40GB", "A100"),
        ("NVIDIA H100 PCIe", "H100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 NVL", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 144G HBM3e", "GH200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("Tesla V100S-PCIE-32GB", "V100S"),
        ("Tesla P100-PCIE-16GB", "P100"),
        ("NVIDIA GeForce RTX 3090", "RTX-3090"),
        ("GeForce RTX 2080 Ti", "RTX-2080-Ti"),
        ("NVIDIA GeForce RTX 4090 D", "RTX-4090-D"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", "RTX-3080-Laptop"),
        ("NVIDIA GeForce GTX 1080 Ti", "GTX-1080-Ti"),
        ("GeForce GTX 1060 6GB", "GTX-1060"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"),
        ("Quadro RTX 6000", "Quadro-RTX-6000"),
        ("Quadro P5000", "Quadro-P5000"),
        ("NVIDIA TITAN RTX", "TITAN-RTX"),
        ("TITAN Xp", "TITAN-Xp"),
        ("NVIDIA Graphics Device", "Graphics-Device"),
        ("NVIDIA", "GPU"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100-1g.5gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb+me", "A100-1g.5gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", "A100-1c.3g.20gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "H100-1g.10gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb", "RTX-PRO-6000-1g.24gb"),
    ],
)
def test_a_driver_name_becomes_a_short_type(name: str, short: str) -> None:
    assert short_gpu_type(name) == short


@given(st.text())
def test_a_short_type_can_always_be_typed(name: str) -> None:
    short = short_gpu_type(name)
    assert short
    assert all(char.isascii() and (char.isalnum() or char in ".-") for char in short)


def test_simulated_gpus_are_numbered_through_all_types() -> None:
    gpus = find_gpus("2xA100, 1xt4")
    devices = gpus.read()
    assert [(device.index, device.type) for device in devices] == [(0, "A100"), (1, "A100"), (2, "T4")]
    assert len({device.uuid for device in devices}) == 3
    assert all(device.is_available and device.memory_mib for device in devices)
    assert gpus.note == "2 simulated A100 and 1 simulated T4"


def test_a_type_nobody_knows_can_be_simulated() -> None:
    assert SimulatedGpus("1xRTX-9999").read()[0].type == "RTX-9999"


def test_mig_slices_can_be_simulated() -> None:
    devices = SimulatedGpus("1xA100,7xA100-1g.10gb").read()
    assert [device.memory_mib // 1024 for device in devices] == [80] + [10] * 7
    assert count_cards(devices) == 2


def test_the_device_file_of_a_capability_is_found_by_its_minor_number(tmp_path: Path) -> None:
    file = tmp_path / "access"
    assert capability_minor(file) is None
    file.write_text("DeviceFileMinor: 76\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    assert capability_minor(file) == "76"


@pytest.mark.parametrize(
    "text", ["", "A100", "4", "x", "0xA100", "4xA100,", "-1xA100", "4x", "4 A100", "999xA100"]
)
def test_a_simulation_that_cannot_be_read_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        find_gpus(text)
    assert text in caught.value.message
    assert "4xA100" in (caught.value.hint or "")


@given(
    st.lists(st.tuples(st.integers(1, 20), st.sampled_from(["A100", "T4", "RTX-3090"])), min_size=1, max_size=5)
)
def test_what_is_written_for_a_simulation_is_what_is_read(groups: list[tuple[int, str]]) -> None:
    assert parse_simulated_gpus(",".join(f"{count}x{type_}" for count, type_ in groups)) == groups


def test_a_foreign_process_marks_its_device_only() -> None:
    foreign = DeviceProcess(123, 500, "alice", "python")
    marked = mark_used_outside([a100(0), a100(1, processes=(foreign,))], is_ours=lambda pid: False)
    assert [device.used_outside for device in marked] == [
        None,
        "in use outside the queue by alice: python (pid 123)",
    ]
    assert [device.is_available for device in marked] == [True, False]


def test_our_own_processes_do_not_mark_a_device() -> None:
    device = a100(processes=(DeviceProcess(123, 500, "alice", "python"),), used_outside="long ago")
    assert mark_used_outside([device], is_ours=lambda pid: pid == 123)[0].used_outside is None


def test_several_foreign_processes_are_counted_without_ours() -> None:
    processes = tuple(DeviceProcess(pid, 0, "bob") for pid in (1, 2, 3, 4))
    marked = mark_used_outside([a100(processes=processes)], is_ours=lambda pid: pid == 1)
    assert marked[0].used_outside == "in use outside the queue by bob (pid 2), and 2 more"


def test_a_process_that_cannot_be_seen_still_marks_its_device() -> None:
    marked = mark_used_outside([a100(processes=(DeviceProcess(9),))], is_ours=lambda pid: False)
    assert marked[0].used_outside == "in use outside the queue by a hidden process (pid 9)"


def test_a_gpu_no_longer_listed_stays_with_a_problem() -> None:
    devices = add_missing_devices([a100(1)], [a100(0, utilisation=90), a100(1)])
    assert [device.uuid for device in devices] == ["GPU-0", "GPU-1"]
    assert "no longer lists" in (devices[0].problem or "")
    assert devices[0].utilisation is None
    assert devices[1].is_available


def test_an_unreadable_gpu_is_known_by_its_place() -> None:
    lost = replace(unreadable_device(1), problem="lost")
    devices = add_missing_devices([a100(0), lost], [a100(0), a100(1)])
    assert devices == [a100(0), a100(1, problem="lost")]


def test_an_unreadable_gpu_is_not_taken_for_one_that_only_moved() -> None:
    moved = Device("GPU-1", 0, "A100", "NVIDIA A100-SXM4-80GB", 81920)
    assert add_missing_devices([moved, unreadable_device(1)], [a100(1)]) == [moved, unreadable_device(1)]


def test_an_unreadable_gpu_is_not_taken_for_another_at_its_place() -> None:
    other = replace(unreadable_device(0), uuid="GPU-new", problem="lost")
    devices = add_missing_devices([other], [a100(0)])
    assert [device.uuid for device in devices] == ["GPU-new", "GPU-0"]
    assert not any(device.is_available for device in devices)


class MovingDriver:
    """Says what it is given, one after the other; an exception is raised, an event is waited for."""

    def __init__(self, *answers: list[Device] | Exception | threading.Event) -> None:
        self.answers = list(answers)
        self.asked = 0

    def read(self) -> list[Device]:
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, threading.Event):
            answer.wait(60)
            return [a100()]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_driver_that_fails_later_leaves_the_known_gpus_listed_until_it_is_back() -> None:
    gpus = DriverGpus(MovingDriver([a100()], RuntimeError("no idea"), [a100()]))
    assert gpus.read() == [a100()]
    assert gpus.read() == [a100(problem="no idea")]
    assert "no idea" in (gpus.note or "")
    assert gpus.read() == [a100()]
    assert gpus.note is None


def test_a_driver_that_hangs_is_asked_once_and_waited_for_once(release: threading.Event) -> None:
    driver = MovingDriver([a100()], release, [a100()])
    gpus = DriverGpus(driver)
    gpus.read()
    for _ in range(3):
        [device] = gpus.read(timeout_seconds=0.05)
        assert "does not answer" in (device.problem or "")
    assert driver.asked == 2


def test_a_driver_that_answers_again_after_hanging_is_believed(release: threading.Event) -> None:
    gpus = DriverGpus(MovingDriver(release, [a100()]))
    assert gpus.read(timeout_seconds=0.05) == []
    assert "does not answer" in (gpus.note or "")
    release.set()
    for thread in threading.enumerate():
        if thread.name == "gpus":
            thread.join(120)
    assert gpus.read() == [a100()]


def test_a_driver_without_cards_says_so() -> None:
    gpus = DriverGpus(MovingDriver([]))
    assert gpus.read() == []
    assert "lists no card" in (gpus.note or "")


def test_without_the_driver_library_the_note_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus_module, "LIBRARY", "libnvidia-ml-not-there.so.1")
    gpus = find_gpus()
    assert gpus.read() == []
    assert "only CPU jobs can run" in (gpus.note or "")
    assert "nvidia-smi" in (gpus.note or "")


@pytest.mark.parametrize(
    ("vendor", "class_", "note"),
    [
        ("0x10de", "0x030200", "This machine has an NVIDIA card"),
        ("0x10de", "0x040300", "No GPU found"),  # the sound of a card given to a virtual machine
        ("0x1002", "0x030000", "No GPU found"),
    ],
)
def test_a_card_without_a_driver_is_distinguished_from_no_card(
    tmp_path: Path, vendor: str, class_: str, note: str
) -> None:
    slot = tmp_path / "0000:01:00.0"
    slot.mkdir()
    (slot / "vendor").write_text(vendor + "\n")
    (slot / "class").write_text(class_ + "\n")
    assert gpus_module._explain_missing_library(tmp_path).startswith(note)


def test_a_process_that_is_gone_has_no_owner_and_no_command() -> None:
    beyond_any = 2**22 + 1
    assert process_user(beyond_any) is None
    assert process_program_name(beyond_any) is None
