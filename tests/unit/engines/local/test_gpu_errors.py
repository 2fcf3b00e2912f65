"""Errors of GPUs, from readings of a driver and a kernel log that the test writes."""

import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from heliostat.engines.local.gpu_errors import GpuErrors
from heliostat.engines.local.kernel_log import KernelLog
from heliostat.models import AttemptEnded, Device, EndCause
from heliostat.models.gpu_errors import GpuError

LONG_AGO = datetime.now(UTC) - timedelta(days=1)


def gpu(index: int = 0, **values: object) -> Device:
    device = Device(f"GPU-{index}", index, "A100", "A100", 80000, pci=f"0000:{index:02x}:00", **values)  # type: ignore[arg-type]
    return device


def ended(attempt_id: str = "7.1", exit_code: int | None = 1, cause: EndCause = EndCause.EXITED) -> AttemptEnded:
    return AttemptEnded(attempt_id, datetime.now(UTC), cause, exit_code)


@dataclass
class Card:
    """A machine whose errors the test chooses."""

    log: socket.socket
    errors: GpuErrors
    holders: dict[str, list[str]]
    pids: dict[int, str]
    clock: list[float]
    recorded: list[GpuError] = field(default_factory=list)
    sequence: int = 0

    def record(self, errors: Sequence[GpuError]) -> None:
        self.recorded += errors

    def write(self, xid: int, rest: str = "", index: int = 0, at: float | None = None) -> None:
        self.sequence += 1
        at_us = int((time.monotonic() if at is None else at) * 1e6)
        text = f"4,{self.sequence},{at_us},-;NVRM: Xid (PCI:0000:{index:02x}:00): {xid}{rest}\n"
        self.log.send(text.encode())

    def kinds(self) -> list[tuple[str, int | None]]:
        return [(error.kind, error.job_id) for error in self.recorded]


@pytest.fixture
def card() -> Iterator[Card]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    holders: dict[str, list[str]] = {}
    pids: dict[int, str] = {}
    clock = [time.monotonic()]
    errors = GpuErrors(KernelLog(theirs.fileno()), pids.get, lambda: holders, lambda: clock[0])
    made = Card(ours, errors, holders, pids, clock)
    errors.set_callback(made.record)
    yield made
    ours.close()
    theirs.close()


def test_an_error_of_the_card_fails_the_jobs_on_it_and_no_others(card: Card) -> None:
    card.holders |= {"GPU-0": ["7.1"], "GPU-1": ["8.1"]}
    card.write(79, ", pid=4711, name=python, GPU has fallen off the bus.")
    card.errors.update([gpu(0), gpu(1)])
    assert card.kinds() == [("xid_79", None)]
    hit = card.errors.explain_end(ended(), [gpu(0)], LONG_AGO)
    assert (hit.cause, hit.detail) == (EndCause.DEVICE_FAILED, "GPU 0 failed: it has fallen off the bus (XID 79)")
    other = ended("8.1")
    assert card.errors.explain_end(other, [gpu(1)], LONG_AGO) == other


@pytest.mark.parametrize(
    "end", [ended(exit_code=0), ended(cause=EndCause.STOPPED), ended(cause=EndCause.OUT_OF_MEMORY)]
)
def test_an_end_with_a_cause_of_its_own_keeps_it(card: Card, end: AttemptEnded) -> None:
    card.write(79)
    card.errors.update([gpu()])
    assert card.errors.explain_end(end, [gpu()], LONG_AGO) == end


def test_a_job_that_started_after_the_error_did_not_fail_because_of_it(card: Card) -> None:
    card.write(79)
    card.errors.update([gpu()])
    end = ended()
    assert card.errors.explain_end(end, [gpu()], datetime.now(UTC) + timedelta(seconds=5)) == end


def test_an_error_of_a_program_is_the_reason_of_its_job_only(card: Card) -> None:
    card.holders |= {"GPU-0": ["7.1", "8.1"]}
    card.pids[4711] = "7.1"
    card.write(31, ", pid=4711, name=python3, Ch 00000008")
    card.errors.update([gpu()])
    assert card.kinds() == [("xid_31", 7)]
    explained = card.errors.explain_end(ended(), [gpu()], LONG_AGO)
    assert explained.cause is EndCause.EXITED
    assert explained.detail == "exit code 1: its program made an illegal memory access on GPU 0 (XID 31)"
    other = ended("8.1")
    assert card.errors.explain_end(other, [gpu()], LONG_AGO) == other


def test_a_program_that_has_ended_was_one_of_the_only_job_on_the_card(card: Card) -> None:
    card.holders |= {"GPU-0": ["7.1"]}
    card.write(13, ", pid=4711, name=python3")
    card.errors.update([gpu()])
    assert card.kinds() == [("xid_13", 7)]


def test_a_process_of_a_job_that_does_not_hold_the_card_blames_no_job(card: Card) -> None:
    card.holders |= {"GPU-0": ["7.1", "8.1"], "GPU-1": ["9.1"]}
    card.pids[4711] = "9.1"
    card.write(31, ", pid=4711, name=python3")
    card.errors.update([gpu(0), gpu(1)])
    assert card.kinds() == [("xid_31", None)]


def test_lines_from_before_this_server_blame_no_job(card: Card) -> None:
    card.holders |= {"GPU-0": ["7.1"]}
    card.write(31, ", pid=4711, name=python3", at=card.clock[0] - 10)
    card.errors.update([gpu()])
    assert card.kinds() == [("xid_31", None)]


def test_a_program_cannot_fill_the_history_with_one_error(card: Card) -> None:
    card.holders |= {"GPU-0": ["7.1"]}
    for _ in range(100):
        card.write(31, ", pid=4711, name=python3")
    card.errors.update([gpu()])
    assert card.kinds() == [("xid_31", 7)]


def test_a_card_that_fails_again_after_its_test_is_reported_again(card: Card) -> None:
    for seconds_ago in (1200, 1190, 600):
        card.write(94, at=card.clock[0] - seconds_ago)
    card.errors.update([gpu()])
    assert card.kinds() == [("xid_94", None), ("xid_94", None)]


def test_the_cleanup_after_a_killed_program_is_no_error(card: Card) -> None:
    card.write(45, ", pid=4711, name=python3, Ch 00000010")
    card.errors.update([gpu()])
    assert card.kinds() == []


def test_an_unknown_xid_is_recorded_and_fails_no_job(card: Card) -> None:
    card.write(999)
    card.errors.update([gpu()])
    assert card.kinds() == [("xid_999", None)]
    assert card.errors.explain_end(ended(), [gpu()], LONG_AGO).cause is EndCause.EXITED


def test_memory_errors_are_reported_again_when_they_become_more(card: Card) -> None:
    for count in (1, 1, 2, 2):
        card.errors.update([gpu(errors=(("ecc", count),))])
    assert card.kinds() == [("ecc", None), ("ecc", None)]


def test_slices_report_an_error_of_their_card_once(card: Card) -> None:
    lost = (("lost", 1),)
    card.errors.update([gpu(card_uuid="GPU-c", errors=lost), gpu(1, card_uuid="GPU-c", errors=lost)])
    assert [error.card for error in card.recorded] == ["GPU-c"]


def test_heat_counts_only_when_it_lasts_for_minutes(card: Card) -> None:
    hot = [gpu(errors=(("overheated", 1),))]
    card.errors.update(hot)
    card.clock[0] += 200
    card.errors.update([gpu()])
    card.errors.update(hot)
    card.clock[0] += 200
    card.errors.update(hot)
    assert card.kinds() == []
    card.clock[0] += 101
    card.errors.update(hot)
    card.errors.update(hot)
    assert card.kinds() == [("overheated", None)]
    assert card.errors.explain_end(ended(), hot, LONG_AGO).cause is EndCause.EXITED


def test_errors_that_could_not_be_recorded_are_reported_again(card: Card) -> None:
    def fail(errors: Sequence[GpuError]) -> None:
        raise OSError("the disk is full")

    card.errors.set_callback(fail)
    card.write(79)
    card.errors.update([gpu()])
    card.errors.set_callback(card.record)
    assert card.kinds() == [("xid_79", None)]
    card.errors.update([gpu()])
    assert len(card.recorded) == 1
