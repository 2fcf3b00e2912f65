"""Jobs that wait in Slurm for other jobs of ours: taken back when Slurm could misread the end of these.

Slurm sees how one of its jobs ends; we know what that means. A job that we stop may still exit with 0, and one
that was lost may be tried again under another number. So whoever waits for a job is taken out of Slurm's queue
before we stop it, and when Slurm says that it can never start; whether it is handed over again is decided as for
any other.
"""

import time
from collections.abc import Collection, Iterable

from heliostat.engines.slurm.following import NEVER_SATISFIED, Around, Readiness, children_by_parent
from heliostat.engines.slurm.handed import Handed
from heliostat.engines.slurm.parse import SlurmJob
from heliostat.engines.slurm.requeues import Requeues
from heliostat.engines.slurm.traces import Trace
from heliostat.models import Attempt, AttemptId, Cause


class Followers(Requeues):
    def ready_of(self, arrived: Collection[Attempt]) -> list[Attempt]:
        """Those that can be submitted now. Of the others, whose parents are no longer what they were have ended as
        not started. One whose answer was lost is looked for first: it may wait in Slurm already."""
        ready: list[Attempt] = []
        self._find_lost_answers(attempt for attempt in arrived if attempt.parents)
        around = self.around(arrived)
        for attempt in arrived:
            found = around.readiness(attempt)
            if found is Readiness.READY and attempt.id not in self.handed:
                ready.append(attempt)
            elif found is Readiness.GONE and attempt.id not in self.handed:
                self.withdraw(attempt, Cause.NOT_STARTED)
        return ready

    def around(self, arrived: Iterable[Attempt]) -> Around:
        expected = {*(attempt.id for attempt in arrived), *self.over, *self.put_back}
        return Around(self.handed, expected, time.monotonic())

    def take_back_children_of(self, stopping: Collection[Handed]) -> None:
        """Before any of these is stopped. Who is being stopped too need not be."""
        if not stopping:
            return
        children = children_by_parent(self.handed.values())
        for parent in stopping:
            for child in children.get(parent.attempt.job.id, ()):
                if child.stopped_as is None and child.attempt.id in self.handed:
                    self._take_back(child)

    def _take_back(self, handed: Handed) -> None:
        """Noted first, so that whoever comes after a killed server does not take it for cancelled by somebody. One
        that has begun meanwhile goes on."""
        number = handed.number
        if number is None:
            return
        attempt_id = handed.attempt.id
        trace = Trace(handed.uid, number, None, handed.restarts, handed.first, taken_back=True)
        self.traces.put(attempt_id, trace)
        handed.taken_back = True
        if not self._commands.postpone(number):
            self._note(handed, number)
            return
        self._commands.cancel(number)
        self._end(handed.attempt, Cause.NOT_STARTED)

    def _is_taken_back(self, handed: Handed, job: SlurmJob) -> bool:
        """Whether that is what becomes of it. A server may have been killed in the middle of it."""
        if handed.taken_back and job.is_over and not job.has_run:
            self._end(handed.attempt, Cause.NOT_STARTED)
            return True
        if job.is_waiting and (handed.taken_back or self._can_never_start(handed, job)):
            self._take_back(handed)
            return handed.attempt.id not in self.handed
        return False

    def _can_never_start(self, handed: Handed, job: SlurmJob) -> bool:
        """As far as Slurm knows, once the ends of all whom it waits for are recorded."""
        if job.reason != NEVER_SATISFIED or handed.stopped_as is not None:
            return False
        parents = {one.parent for one in handed.attempt.job.after}
        known: set[AttemptId] = {*self.handed, *self.over, *self.put_back}
        return bool(parents) and not any(int(one.partition(".")[0]) in parents for one in known)

    def _find_lost_answers(self, attempts: Iterable[Attempt]) -> None:
        """With one question for all."""
        traces = ((attempt, self.traces.find(attempt.id)) for attempt in attempts)
        self._find_again(
            [self._handed(one, trace.uid) for one, trace in traces if trace and trace.uid is not None]
        )
