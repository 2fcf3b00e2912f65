"""Kinds of GPU errors: who is to blame, what to do, and whether the card is taken out. Pure.

XIDs are the numbers of errors in the kernel log of the NVIDIA driver. Sources: NVIDIA's XID catalog
(https://docs.nvidia.com/deploy/xid-errors), and for errors of programs the list that NVIDIA's Kubernetes device
plugin ignores.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliostat.models.jobs import JobId

_RESET = "reset it with `nvidia-smi -r`, or reboot the node"
_REBOOT = "reboot the node; if it happens again, check its power and its slot, or replace the card"
_REPLACE = "replace the card"


class Blame(StrEnum):
    JOB = "job"  # its program
    CARD = "card"
    DRIVER = "driver"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GpuErrorKind:
    blame: Blame
    text: str  # of a program: what it did; otherwise what is wrong
    next_step: str = ""  # for an admin, before a test
    takes_out: bool = True  # until it passes a test
    ends_jobs: bool = True  # a job on the card that fails afterwards failed because of it
    held_seconds: float = 0.0  # it counts only after it has been there for this time


@dataclass(frozen=True, slots=True)
class GpuError:
    """An error of a card at one time."""

    card: str  # uuid
    number: str  # of the GPU, as nvidia-smi shows it
    kind: str  # "xid_79", "ecc"
    at: datetime
    message: str | None = (
        None  # identifies its message in the kernel log; None: the driver reports it all the time
    )
    job_id: JobId | None = None  # whose program caused it


def xid_kind(xid: int) -> str:
    return f"xid_{xid}"


def find_error_kind(name: str) -> GpuErrorKind:
    """Unknown XIDs are only recorded: users can cause some of them."""
    return GPU_ERROR_KINDS.get(name, _UNKNOWN)


def describe_error(name: str, where: str = "") -> str:
    """`it has fallen off the bus (XID 79)`"""
    xid = re.fullmatch(r"xid_(\d+)", name)
    return find_error_kind(name).text + where + (f" (XID {xid[1]})" if xid else "")


def _program(text: str) -> GpuErrorKind:
    return GpuErrorKind(Blame.JOB, text, takes_out=False, ends_jobs=False)


def _card(text: str, next_step: str = _RESET) -> GpuErrorKind:
    return GpuErrorKind(Blame.CARD, text, next_step)


def _warning(text: str, next_step: str = "") -> GpuErrorKind:
    """Recorded in the history of the card only."""
    return GpuErrorKind(Blame.CARD, text, next_step, takes_out=False, ends_jobs=False)


def _driver(text: str) -> GpuErrorKind:
    return GpuErrorKind(Blame.DRIVER, text, _RESET)


def _slow(text: str, next_step: str) -> GpuErrorKind:
    return GpuErrorKind(Blame.CARD, text, next_step, ends_jobs=False, held_seconds=300.0)


_UNKNOWN = GpuErrorKind(
    Blame.UNKNOWN, "the driver reported an error", "look it up in NVIDIA's XID catalog", False, False
)
IGNORED_KINDS = frozenset({xid_kind(45)})  # the driver cleans up after another error, or after a kill
GPU_ERROR_KINDS = {
    # Reported by NVML
    "lost": _card("it has fallen off the bus", _REBOOT),
    "reset_required": _card("it must be reset"),
    "ecc": _card("uncorrected memory errors (ECC)"),
    "remapping_failed": _card("its faulty memory cannot be repaired (row remapping failed)", _REPLACE),
    "remapping_pending": GpuErrorKind(
        Blame.CARD, "a repair of its memory (row remapping) waits for a reset", _RESET, ends_jobs=False
    ),
    "retirement_pending": GpuErrorKind(
        Blame.CARD, "a repair of its memory (page retirement) waits for a reset", _RESET, ends_jobs=False
    ),
    "overheated": _slow("it is slowed down by heat for minutes", "check its fans and the cooling of the node"),
    "power_brake": _slow(
        "it is slowed down by its power supply for minutes", "check the power supplies of the node"
    ),
    # XIDs that programs cause
    "xid_8": _program("did not finish its work in time"),
    "xid_11": _program("sent invalid commands"),
    "xid_13": _program("ran an illegal instruction or accessed memory out of bounds"),
    "xid_31": _program("made an illegal memory access"),
    "xid_32": _program("sent invalid or corrupted commands"),
    "xid_43": _program("caused an error, and the GPU stopped its work"),
    "xid_68": _program("caused an error of the video decoder"),
    "xid_69": _program("caused an error of the compute engine"),
    "xid_109": _program("did not make room for another program in time"),
    # XIDs of the card
    "xid_48": _card("a memory error that cannot be corrected (double-bit ECC)"),
    "xid_54": _card("its power cable is not connected", "connect its power cable, then reboot the node"),
    "xid_63": _warning("a faulty part of its memory was repaired, or will be at the next reset"),
    "xid_64": _card("a faulty part of its memory could not be repaired"),
    "xid_74": _card("an error of its NVLink connection", _RESET),
    "xid_79": _card("it has fallen off the bus", _REBOOT),
    "xid_92": _warning("many memory errors that were corrected (single-bit ECC)", "watch the card"),
    "xid_94": _card("a memory error that cannot be corrected ended a program (contained ECC)"),
    "xid_95": _card("a memory error that cannot be corrected and can affect all programs (uncontained ECC)"),
    "xid_140": _card("a memory error that cannot be corrected (unrecovered ECC)"),
    # XIDs of the firmware and the driver
    "xid_46": _driver("it stopped working"),
    "xid_61": _driver("its internal microcontroller stopped"),
    "xid_62": _driver("its internal microcontroller halted"),
    "xid_119": _driver("its system processor (GSP) does not answer"),
    "xid_120": _driver("its system processor (GSP) failed"),
}
