"""Jobs that wait in Slurm for other jobs of ours: taken back when Slurm could misread the end of these.

Slurm sees how one of its jobs ends; we know what that means. A job that we stop may still exit with 0, and one
that was lost may be tried again under another number. So whoever waits for a job is taken out of Slurm's queue
before we stop it, and when Slurm says that it can never start; whether it is handed over again is decided as for
any other.
"""

import time
from collections.abc import Collection, Iterable
from itertools import islice

from heliostat.engines.slurm.following import NEVER_SATISFIED, Around, Readiness, children_by_parent
from heliostat.engines.slurm.handed import Handed
from heliostat.engines.slurm.parse import SlurmJob
from heliostat.engines.slurm.requeues import Requeues
from heliostat.engines.slurm.traces import Trace
from heliostat.models import Attempt, AttemptId, Cause, JobId

_AT_ONCE = 50  # children that are taken back before Slurm is looked at again


class Followers(Requeues):
    _known: frozenset[JobId] | None = None  # jobs of which something is known, as of this look

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

    def take_back_children_of(self, stopping: Collection[Handed]) -> set[AttemptId]:
        """Before any of these is stopped. Who is being stopped too need not be. Of many children some are left for
        the next round: whose they are is told, and not to be stopped yet."""
        if not stopping:
            return set()
        children = children_by_parent(self.handed.values())
        ours = {one.attempt.id: children.get(one.attempt.job.id, ()) for one in stopping}
        wanted = {child.attempt.id: child for some in ours.values() for child in some if child.stopped_as is None}
        self._take_back(*islice(wanted.values(), _AT_ONCE))
        later = set(islice(wanted, _AT_ONCE, None))
        return {parent for parent, some in ours.items() if any(child.attempt.id in later for child in some)}

    def _take_back(self, *children: Handed) -> None:
        """Noted first, so that whoever comes after a killed server does not take it for cancelled by somebody. One
        that has begun meanwhile goes on."""
        known = [(handed, handed.number) for handed in children if handed.number is not None]
        for handed, number in known:
            trace = Trace(handed.uid, number, None, handed.restarts, handed.first, taken_back=True)
            self.traces.put(handed.attempt.id, trace)
            handed.taken_back = True
        kept = self._commands.postpone(*(number for _, number in known)) if known else set()
        for handed, number in known:
            if number not in kept:
                self._note(handed, number)
        self._commands.cancel(*kept)
        for handed, number in known:
            if number in kept:
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
        if self._known is None:  # found once for all of a look
            ids = [*self.handed, *self.over, *self.put_back]
            self._known = frozenset(int(one.partition(".")[0]) for one in ids)
        return bool(parents) and self._known.isdisjoint(parents)

    def _find_lost_answers(self, attempts: Iterable[Attempt]) -> None:
        """With one question for all."""
        traces = ((attempt, self.traces.find(attempt.id)) for attempt in attempts)
        self._find_again(
            [self._handed(one, trace.uid) for one, trace in traces if trace and trace.uid is not None]
        )
