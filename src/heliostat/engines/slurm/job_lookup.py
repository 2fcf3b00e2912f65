"""Finds the Slurm job of an attempt whose submission may have been lost."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliostat.engines.slurm.batch_script import array_comment, attempt_comment
from heliostat.engines.slurm.client import SlurmClient
from heliostat.engines.slurm.command_output import ArrayElementId
from heliostat.engines.slurm.journal import ArrayElement, JournalEntry, read_receipt
from heliostat.engines.slurm.tracked_jobs import TrackedJob
from heliostat.models import (
    AttemptId,
    job_id_of_attempt,
)

_Comments = Mapping[int, Mapping[str, Sequence[int]]]  # Slurm job ids by uid and comment


@dataclass(frozen=True, slots=True)
class JobLookup:
    """Finds Heliostat's jobs in Slurm by their comments, if their ids are unknown or may have been reused.

    Users can set any comment: a job with our comment must also belong to the right user, and the comments of each
    user are read separately.
    """

    client: SlurmClient
    instance: str

    def find_job_ids(self, lost: Sequence[TrackedJob], *, written: bool = True) -> dict[AttemptId, int]:
        """Ids of attempts whose response was lost: by their comments and, if `written`, by their receipts."""
        comments = self._comments(tracked.uid for tracked in lost)
        candidates = {
            tracked.attempt.id: self._ids_with_comment(comments, tracked.attempt.id, tracked.uid, tracked.element)
            + (_id_in_receipt(tracked) if written else [])
            for tracked in lost
        }
        if not any(candidates.values()):
            return {}
        jobs = self.client.jobs()
        missing = [id_ for ids in candidates.values() if not jobs.keys() & set(ids) for id_ in ids]
        jobs |= self.client.past_jobs(missing) if missing else {}
        found: dict[AttemptId, int] = {}
        for tracked in lost:
            ids = [id_ for id_ in candidates[tracked.attempt.id] if id_ in jobs and jobs[id_].uid == tracked.uid]
            found |= {tracked.attempt.id: ids[0]} if ids else {}
        return found

    def find_orphans(self, journal: Mapping[AttemptId, JournalEntry]) -> list[int]:
        """Slurm job ids of these unneeded attempts. A Slurm that has lost its state reuses ids: the comment
        decides which attempt a job belongs to."""
        comments = self._comments(entry.uid for entry in journal.values() if entry.uid is not None)
        jobs = self.client.jobs() if comments else {}
        found: dict[int, None] = {}
        for attempt_id, entry in journal.items():
            if entry.uid is None:
                continue
            submitted_as = (
                attempt_id
                if entry.submitted_as_attempt is None
                else f"{job_id_of_attempt(attempt_id)}.{entry.submitted_as_attempt}"
            )
            ids = [
                id_
                for possible_id in dict.fromkeys((attempt_id, submitted_as))
                for id_ in self._ids_with_comment(comments, possible_id, entry.uid, entry.element)
            ]
            if entry.slurm_job_id is not None and not self._was_reused(entry, comments[entry.uid]):
                ids.append(entry.slurm_job_id)
            found |= dict.fromkeys(id_ for id_ in ids if id_ in jobs and jobs[id_].uid == entry.uid)
        return list(found)

    def _comments(self, uids: Iterable[int]) -> _Comments:
        found: dict[int, dict[str, list[int]]] = {}
        for uid in set(uids):
            found[uid] = defaultdict(list)
            for number, comment in self.client.job_comments(uid):
                found[uid][comment].append(number)
        return found

    def _was_reused(self, entry: JournalEntry, comments: Mapping[str, Sequence[int]]) -> bool:
        """Whether the job with this id has a comment of Heliostat: if it is the entry's own, the comment finds it.
        If the journal has no chunk for an array element, the comment of any array may be its own."""
        prefix = attempt_comment(self.instance, "")
        may_be_any_array = isinstance(entry.slurm_job_id, ArrayElementId) and entry.element is None
        ours = [text for text, ids in comments.items() if entry.slurm_job_id in ids and text.startswith(prefix)]
        return any(not (may_be_any_array and text.endswith("+")) for text in ours)

    def _ids_with_comment(
        self, comments: _Comments, attempt_id: AttemptId, uid: int, element: ArrayElement | None
    ) -> list[int]:
        single = list(comments[uid].get(attempt_comment(self.instance, attempt_id), ()))
        if element is None:
            return single
        array = comments[uid].get(array_comment(self.instance, element.first_attempt_id), ())
        return single + [id_ for id_ in array if isinstance(id_, ArrayElementId) and id_.index == element.index]


def _id_in_receipt(tracked: TrackedJob) -> list[int]:
    number = read_receipt(tracked.receipt_path).slurm_job_id
    return [] if number is None else [number]
