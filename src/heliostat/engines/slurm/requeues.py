"""What Slurm puts back into its queue: the same job of Slurm's becomes the next attempt of ours."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from heliostat.config import Settings
from heliostat.engines.folders import Refused, person_of
from heliostat.engines.slurm.associations import SlurmAccounts
from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.handed import Handed, limit_set_in_slurm, next_attempt
from heliostat.engines.slurm.handover import Handover
from heliostat.engines.slurm.parse import SlurmJob
from heliostat.engines.slurm.script import limit_minutes
from heliostat.engines.slurm.submission import begin_again
from heliostat.engines.slurm.terms import Unfit
from heliostat.models import AttemptId, Cause, Ended, Retimed, attempt_id


class Requeues(Handover):
    def __init__(
        self, settings: Settings, commands: Commands, instance: str, accounts: SlurmAccounts | None = None
    ) -> None:
        super().__init__(settings, commands, instance, accounts)
        self.put_back: dict[AttemptId, Ended] = {}  # requeued by Slurm, until that is recorded

    def forget(self, attempt_id: AttemptId) -> bool:
        """Its end is recorded. True if that is its end in Slurm, too: its trace is left then. If it was requeued,
        the next attempt may be told of from now on."""
        self.over.pop(attempt_id, None)
        if self.put_back.pop(attempt_id, None) is None:
            return True
        if (after := self.successor_of(attempt_id)) and after.number is not None:
            self._note(after, after.number)
            after.former = None
        self.traces.remove([attempt_id])
        return False

    def successor_of(self, attempt_id: AttemptId) -> Handed | None:
        return next((handed for handed in list(self.handed.values()) if handed.former == attempt_id), None)

    def _is_former_requeued(self, handed: Handed, jobs: Mapping[int, SlurmJob]) -> bool:
        """A server was killed after it had recorded that, and before it had noted the number anew."""
        job = handed.attempt.job
        former = attempt_id(job.id, job.attempt - 1)
        trace = self.traces.find(former)
        found = jobs.get(trace.number) if trace and trace.number else None
        if trace is None or found is None or found.uid != handed.uid or found.is_over:
            return False
        if found.place.restarts <= trace.restarts:
            return False
        handed.restarts, handed.first = found.place.restarts, trace.first or job.attempt - 1
        self._note(handed, found.number)
        self.traces.remove([former])
        return True

    def _put_back(self, handed: Handed, job: SlurmJob) -> None:
        """Slurm has it again, under the same number: that is the next attempt."""
        before, after = handed.attempt, next_attempt(handed.attempt)
        again = self._handed(after, handed.uid)
        again.number, again.former = handed.number, before.id
        again.restarts, again.first = job.place.restarts, handed.first or before.job.attempt
        with contextlib.suppress(OSError, Refused):  # then both attempts have the same output
            person = person_of(before.job.unix_user)
            begin_again(self._settings, after, again.first, person, runs=not job.is_waiting)
        del self.handed[before.id]
        self.handed[after.id] = again
        self._owners[job.number] = after.id
        detail = "requeued by Slurm, or with Slurm's own tools"
        end = Ended(before.id, datetime.now(UTC), Cause.REQUEUED, detail=detail)
        self.put_back[before.id] = end
        self._outbox.append(end)

    def _retime(self, handed: Handed, job: SlurmJob) -> None:
        """Somebody has changed its limit: that is its limit from now on."""
        attempt = handed.attempt
        try:
            found = limit_set_in_slurm(attempt, job, limit_minutes(attempt, self.site))
        except Unfit:  # the settings have changed since
            return
        if found is not None:
            handed.attempt = replace(attempt, job=replace(attempt.job, time_limit_seconds=found[0]))
            self._outbox.append(Retimed(attempt.id, datetime.now(UTC), found[0]))
