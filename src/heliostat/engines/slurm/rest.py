"""Talks to Slurm through slurmrestd; what that cannot do in Slurm 22.05 is left to the tools, if there are any:
draining and resuming nodes, making and deleting reservations, accounts and shares, what a job has used.
"""

import contextlib
import os
import pwd
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from heliostat.engines.slurm import rest_read
from heliostat.engines.slurm.commands import NOT_WAITING, POSTPONED, Commands
from heliostat.engines.slurm.parse import SlurmJob, SlurmNode
from heliostat.engines.slurm.partitions import Partition
from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.engines.slurm.reservations import SlurmReservation
from heliostat.engines.slurm.rest_http import SUBMIT_SECONDS, RestApi
from heliostat.engines.slurm.rest_order import Untold, order_of
from heliostat.errors import EngineUnavailable
from heliostat.models import Reading

SLURM, ACCOUNTING = "/slurm/v0.0.38", "/slurmdb/v0.0.38"
_NOTHING_FOUND = 9003
_ELEMENT_UPDATED = "job array update"
_ON_ITS_WAY_SECONDS = 1.5 * SUBMIT_SECONDS  # how long slurmrestd may go on with what a killed server sent
_ASKED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class RestCommands(Commands):
    """Every question it overrides goes to slurmrestd; the others are those of the tools."""

    api: RestApi = field(kw_only=True)

    def submit(self, argv: Sequence[str], script: str) -> int:
        try:
            order = order_of(argv)
        except Untold as error:
            raise SlurmRefused(str(error)) from error
        user = None if order.uid is None else _name(order.uid)
        with self._on_its_way():
            answer = self.api.submit(f"{SLURM}/job/submit", {"script": script, "job": order.job}, user)
        number = answer.content.get("job_id")
        if isinstance(number, int) and number > 0:
            return number  # taken: what `errors` says besides is a warning
        raise answer.refusal() or EngineUnavailable("slurmrestd gave no number.")

    def has_earlier_submissions(self) -> bool:
        """slurmrestd goes on with what a killed server sent: until that has come to its end, too."""
        for mark in self.lock.parent.glob(f"{self.lock.stem}.*.rest"):
            with contextlib.suppress(FileNotFoundError):
                if abs(time.time() - mark.stat().st_mtime) < _ON_ITS_WAY_SECONDS:
                    return True
                mark.unlink()
        return Commands.has_earlier_submissions(self)

    def jobs(self, ours: Iterable[int] | None = None) -> dict[int, SlurmJob]:
        return rest_read.jobs_in(self._get(f"{SLURM}/jobs"), datetime.now(UTC))

    def accounted_jobs(self, numbers: Iterable[int]) -> dict[int, SlurmJob]:
        """With their exit codes where the tools are: slurmrestd leaves them out."""
        wanted = list(numbers)
        found: dict[int, SlurmJob] = {}
        for first in range(0, len(wanted), _ASKED_AT_ONCE):
            words = quote(",".join(map(str, wanted[first : first + _ASKED_AT_ONCE])), safe="")
            found |= rest_read.past_jobs_in(self._get(f"{ACCOUNTING}/jobs?step={words}"))
        found = {number: job for number, job in found.items() if number in wanted}
        failed = [number for number, job in found.items() if job.state == "FAILED"]
        with contextlib.suppress(SlurmRefused, EngineUnavailable):
            found |= Commands.accounted_jobs(self, failed) if failed else {}
        return found

    def comments_of(self, uid: int) -> list[tuple[int, str]]:
        return list(rest_read.texts_in(self._get(f"{SLURM}/jobs"), "comment", uid).items())

    def names(self) -> dict[int, str]:
        return rest_read.texts_in(self._get(f"{SLURM}/jobs"), "name")

    def loads(self) -> dict[str, Reading]:
        return rest_read.loads_in(self._get(f"{SLURM}/nodes"))

    def devices(self, job: SlurmJob) -> dict[str, tuple[int, ...]]:
        try:
            return rest_read.devices_in(self._get(f"{SLURM}/job/{job.number}"), job.nodes)
        except SlurmRefused:
            return {}

    def nodes(self) -> list[SlurmNode]:
        return rest_read.nodes_in(self._get(f"{SLURM}/nodes"))

    def partitions(self) -> dict[str, Partition]:
        return rest_read.partitions_in(self._get(f"{SLURM}/partitions"))

    def max_array_size(self) -> int | None:
        """slurmrestd does not say."""
        return None

    def reservations(self) -> list[SlurmReservation]:
        return rest_read.reservations_in(self._get(f"{SLURM}/reservations"))

    def cancel(self, *numbers: int) -> None:
        for number in numbers:
            self._end(f"{SLURM}/job/{number}")

    def postpone(self, *numbers: int) -> set[int]:
        return {number for number in numbers if self._postpone(number)}

    def _postpone(self, number: int) -> bool:
        """Of an element slurmrestd says that it failed, in words of its own, though it did it."""
        answer = self.api.submit(f"{SLURM}/job/{number}", {"begin_time": POSTPONED}, None)
        refusal = answer.refusal()
        if refusal is None or _ELEMENT_UPDATED in str(answer.content.get("errors")):
            return True
        if any(words in str(refusal).lower() for words in NOT_WAITING):
            return False
        raise EngineUnavailable(f"Slurm does not keep job {number} back: {refusal}.") from refusal

    def set_time_limit(self, number: int, minutes: int) -> None:
        answer = self.api.submit(f"{SLURM}/job/{number}", {"time_limit": minutes}, None)
        refusal = answer.refusal()
        if refusal is not None and _ELEMENT_UPDATED not in str(answer.content.get("errors")):
            raise refusal

    def signal(self, number: int, name: str) -> None:
        self._end(f"{SLURM}/job/{number}?signal={name}")

    def version(self) -> str:
        release = self._get(f"{SLURM}/ping").get("meta", {}).get("Slurm", {}).get("release")
        return f"slurm {release}"

    def ping(self) -> None:
        pings = self._get(f"{SLURM}/ping").get("pings") or ()
        if not any(one.get("ping") == "UP" for one in pings if isinstance(one, dict)):
            raise EngineUnavailable("slurmctld does not answer slurmrestd.", "See slurmctld's log.")

    def _get(self, path: str) -> dict[str, Any]:
        answer = self.api.get(path)
        refusal = answer.refusal()
        if refusal is not None and not _is_nothing_found(answer.content):
            raise refusal
        return answer.content

    def _end(self, path: str) -> None:
        refusal = self.api.delete(path).refusal()
        if isinstance(refusal, EngineUnavailable):  # else it is gone, or going: the next look says
            raise refusal

    @contextlib.contextmanager
    def _on_its_way(self) -> Iterator[None]:
        """Leaves a mark on disk while a submission has no answer, for whoever comes after a killed server."""
        mark = self.lock.with_name(f"{self.lock.stem}.{uuid.uuid4().hex}.rest")
        mark.touch(mode=0o600)
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    def _run(self, argv: Sequence[str]) -> str:
        if shutil.which(argv[0], path=self.environment.get("PATH", os.defpath)) is None:
            raise SlurmRefused(f"slurmrestd cannot do this, and {argv[0]} is not installed on this machine")
        return Commands._run(self, argv)


def _is_nothing_found(content: dict[str, Any]) -> bool:
    errors = content.get("errors") or ()
    return all(isinstance(error, dict) and error.get("error_number") == _NOTHING_FOUND for error in errors)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise SlurmRefused(f"this machine knows no user {uid}") from None
