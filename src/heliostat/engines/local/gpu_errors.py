"""Finds errors of GPUs in the readings of the driver and in the kernel log, and the attempts that they concern."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain

from heliostat.engines.contract import GpuErrorCallback
from heliostat.engines.local.kernel_log import KernelLog, XidMessage, message_time
from heliostat.engines.local.processes import boot_id
from heliostat.models import AttemptEnded, AttemptId, Device, EndCause, job_id_of_attempt
from heliostat.models.gpu_errors import (
    IGNORED_KINDS,
    Blame,
    GpuError,
    describe_error,
    find_error_kind,
    xid_kind,
)
from heliostat.server_log import get_logger

log = get_logger()
_MAX_KNOWN = 1000  # errors in memory
# An XID that comes again within this time is not recorded again. One that takes out a card may come soon after
# its test.
_REPEAT, _REPEAT_OF_FAILURE = timedelta(hours=1), timedelta(minutes=1)
_CLOCK_TOLERANCE = timedelta(seconds=1)  # of the start of an attempt


@dataclass(frozen=True, slots=True)
class _Found:
    error: GpuError
    attempt_id: AttemptId | None = None  # whose program caused it


@dataclass(frozen=True, slots=True)
class _Lasting:
    """An error that the driver reports in every reading."""

    count: int
    since: float  # on the monotonic clock
    is_recorded: bool = False


class GpuErrors:
    """Errors are passed to the server before `update` returns, so that a card is taken out before its jobs end."""

    def __init__(
        self,
        kernel_log: KernelLog,
        attempt_of: Callable[[int], AttemptId | None],
        holders: Callable[[], Mapping[str, Collection[AttemptId]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kernel_log, self._attempt_of, self._holders, self._clock = kernel_log, attempt_of, holders, clock
        self._started = clock()
        self._lock = threading.Lock()
        self._lasting: dict[tuple[str, str], _Lasting] = {}
        self._known: deque[_Found] = deque(maxlen=_MAX_KNOWN)
        self._unreported: deque[GpuError] = deque(maxlen=_MAX_KNOWN)
        self._report: GpuErrorCallback | None = None

    def set_callback(self, report: GpuErrorCallback) -> None:
        with self._lock:
            self._report = report
            self._send()

    def update(self, devices: Sequence[Device]) -> None:
        """Find new errors in this reading and in the kernel log."""
        with self._lock:
            for found in chain(self._read_kernel_log(devices), self._compare(devices)):
                self._known.append(found)
                self._unreported.append(found.error)
            self._send()

    def explain_end(self, end: AttemptEnded, devices: Collection[Device], started_at: datetime) -> AttemptEnded:
        """The end of an attempt on these devices, with the error that caused it, if any."""
        has_failed = end.cause is EndCause.LOST or (end.cause is EndCause.EXITED and end.exit_code != 0)
        if not has_failed:
            return end
        with self._lock:
            known = [each for each in self._known if each.error.at >= started_at - _CLOCK_TOLERANCE]
        cards = {device.card for device in devices}
        for each in known:
            if each.error.card in cards and find_error_kind(each.error.kind).ends_jobs:
                detail = f"GPU {each.error.number} failed: {describe_error(each.error.kind)}"
                return replace(end, cause=EndCause.DEVICE_FAILED, detail=detail)
        for each in known:
            if each.attempt_id == end.attempt_id and end.cause is EndCause.EXITED:
                detail = f"its program {describe_error(each.error.kind, f' on GPU {each.error.number}')}"
                return replace(end, detail=f"exit code {end.exit_code}: {detail}")
        return end

    def _send(self) -> None:
        """What cannot be recorded now is sent again with the next errors."""
        if self._report is None or not self._unreported:
            return
        try:
            self._report(list(self._unreported))
        except Exception as error:  # noqa: BLE001 - for example a full disk
            log.warning("gpu_errors_not_recorded", error=repr(error))
        else:
            self._unreported.clear()

    def _read_kernel_log(self, devices: Sequence[Device]) -> Iterator[_Found]:
        for message in self._kernel_log.read_xids():
            on_card = [device for device in devices if device.pci == message.pci]
            if on_card and (found := self._find_xid(message, on_card)):
                yield found

    def _find_xid(self, message: XidMessage, on_card: Sequence[Device]) -> _Found | None:
        kind, at, card = xid_kind(message.xid), message_time(message), on_card[0].card
        attempt_id = self._causing_attempt(message, on_card)
        if kind in IGNORED_KINDS or self._is_repeated(card, kind, attempt_id, at):
            return None
        job_id = job_id_of_attempt(attempt_id) if attempt_id else None
        number = str(on_card[0].index)
        return _Found(GpuError(card, number, kind, at, f"{boot_id()}:{message.sequence}", job_id), attempt_id)

    def _causing_attempt(self, message: XidMessage, on_card: Sequence[Device]) -> AttemptId | None:
        """The process may have ended; then it was one of the only attempt on this card, if there is one. Messages
        from before this server are not attributed: their pids may belong to other processes by now."""
        if message.at_seconds < self._started or find_error_kind(xid_kind(message.xid)).blame is not Blame.JOB:
            return None
        holders = self._holders()
        attempts = {attempt_id for device in on_card for attempt_id in holders.get(device.uuid, ())}
        if message.pid is not None and (by_pid := self._attempt_of(message.pid)) in attempts:
            return by_pid
        return next(iter(attempts)) if len(attempts) == 1 else None

    def _is_repeated(self, card: str, kind: str, attempt_id: AttemptId | None, at: datetime) -> bool:
        """Programs can cause some XIDs as often as they like, and a faulty card many others."""
        limit = _REPEAT_OF_FAILURE if find_error_kind(kind).takes_out else _REPEAT
        return any(
            (each.error.card, each.error.kind, each.attempt_id) == (card, kind, attempt_id)
            and at - each.error.at < limit
            for each in self._known
        )

    def _compare(self, devices: Sequence[Device]) -> Iterator[_Found]:
        """Errors that are new in this reading, or more than before. Slices of a card report the same."""
        now, before = self._clock(), self._lasting
        reported = {
            (device.card, kind): (count, str(device.index))
            for device in devices
            for kind, count in device.errors
            if device.type != "unknown"
        }
        self._lasting = {}
        for (card, kind), (count, number) in reported.items():
            earlier = before.get((card, kind), _Lasting(count, now))
            is_due = now - earlier.since >= find_error_kind(kind).held_seconds
            if is_due and (not earlier.is_recorded or count > earlier.count):
                yield _Found(GpuError(card, number, kind, datetime.now(UTC)))
            self._lasting[card, kind] = _Lasting(count, earlier.since, earlier.is_recorded or is_due)
