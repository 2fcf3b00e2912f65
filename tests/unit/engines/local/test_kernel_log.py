"""XIDs in records of /dev/kmsg. Users choose the names of processes, and root may write lines of its own."""

import os

import pytest

from heliostat.engines.local.kernel_log import KernelLog, XidMessage, open_kernel_log, parse_record


def record(text: str, priority: int = 4) -> bytes:
    return f"{priority},77,2500000,-;{text}\n SUBSYSTEM=pci\n".encode()


@pytest.mark.parametrize(
    ("text", "xid", "pid"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 79, None),
        ("NVRM: Xid (PCI:0000:3B:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 79, None),
        (
            "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000008, intr 10000000.",
            31,
            4711,
        ),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid='4711', name=python3", 31, 4711),
        ("NVRM: Xid (PCI:00000000:3b:00 GPU-I:05): 13, pid=12, name=x", 13, 12),
        ("NVRM: Xid (PCI:0000:3b:00): 48", 48, None),
    ],
)
def test_the_number_and_the_pid_are_read(text: str, xid: int, pid: int | None) -> None:
    assert parse_record(record(text)) == XidMessage(77, 2.5, "0000:3b:00", xid, pid)


@pytest.mark.parametrize(
    "text",
    [
        "usb 1-1: new device",
        "x NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",  # a name of a process before it
        "NVRM: Xid (PCI:0000:3b:00): 79x",
        "NVRM: Xid (PCI:0000:3b:00): 99999",
        "NVRM: Xid (PCI:../../3b:00): 79, ",
        "NVRM: Xid (PCI:0000:3b:00): 79; 31",
        "",
    ],
)
def test_other_lines_are_no_xids(text: str) -> None:
    assert parse_record(record(text)) is None


def test_a_name_of_a_process_adds_neither_a_pid_nor_an_xid() -> None:
    name = "a, pid=1, NVRM: Xid (PCI:0000:3b:00): 79"
    found = parse_record(record(f"NVRM: Xid (PCI:0000:3b:00): 31, name={name}, pid=2"))
    assert found is not None
    assert (found.xid, found.pid) == (31, None)


def test_a_line_of_a_program_is_not_one_of_the_kernel() -> None:
    """The kernel gives facility 1 to what root writes to /dev/kmsg."""
    assert parse_record(record("NVRM: Xid (PCI:0000:3b:00): 79", priority=12)) is None


def test_broken_records_are_ignored() -> None:
    for broken in (b"", b";", b"4,77", b"4,77,x,-;NVRM: Xid (PCI:0000:3b:00): 79", b"\xff" * 100):
        assert parse_record(broken) is None


def test_a_log_that_may_not_be_read_has_no_messages() -> None:
    log = KernelLog(None)
    assert not log.is_readable
    assert list(log.read_xids()) == []


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="this user may not read /dev/kmsg")
def test_the_log_of_this_machine_is_read_to_its_end() -> None:
    descriptor = open_kernel_log()
    if descriptor is None:
        pytest.skip("the kernel does not permit it")
    log = KernelLog(descriptor)
    list(log.read_xids())
    os.close(descriptor)
