"""What is kept of how to repeat a job, for those who may inspect it."""

from dataclasses import dataclass

from heliostat.models import Caller, Job, JobId
from heliostat.models.records import JobRecord
from heliostat.models.uploads import Tree
from heliostat.services.context import Context
from heliostat.services.rights import inspectable_job
from heliostat.store.job_records import record_of, reruns_of


@dataclass(frozen=True, slots=True)
class Kept:
    job: Job
    record: JobRecord
    reruns: tuple[JobId, ...] = ()  # the newest that repeat it
    tree: Tree | None = None  # of the code that was uploaded for it, if it is there still


def job_record(context: Context, caller: Caller, job_id: JobId) -> Kept:
    """Raises NotFound or Forbidden."""
    job = inspectable_job(context, caller, job_id)
    with context.store.read() as conn:
        record, reruns = record_of(conn, job_id), reruns_of(conn, job_id)
    tree = None if job.spec.upload is None else context.uploads.tree(job.user, job.spec.upload)
    return Kept(job, record, tuple(reruns), tree)
