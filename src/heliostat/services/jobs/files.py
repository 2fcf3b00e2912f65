"""Files in a job's private folder, for users who may inspect the job."""

from heliostat.engines.contract import RunsPrograms
from heliostat.engines.job_file_reader import FileEntry, FolderListing, OpenFile
from heliostat.errors import NotFound
from heliostat.models import Caller, Job, JobId
from heliostat.services.context import Context, require_program_engine
from heliostat.services.permissions import require_inspectable_job

__all__ = ["FileEntry", "FolderListing", "has_own_folder", "list_files", "open_file"]


def has_own_folder(context: Context, job: Job) -> bool:
    """Whether the job has a private folder, and the folder exists."""
    engine = context.engine
    return job.spec.workdir is None and isinstance(engine, RunsPrograms) and engine.has_job_files(job.id, "work")


def list_files(context: Context, caller: Caller, job_id: JobId, path: str) -> FolderListing:
    _check_folder(require_inspectable_job(context, caller, job_id))
    return require_program_engine(context).list_job_files(job_id, path)


def open_file(context: Context, caller: Caller, job_id: JobId, path: str) -> OpenFile:
    """A regular file that belongs to the job's owner."""
    _check_folder(require_inspectable_job(context, caller, job_id))
    return require_program_engine(context).open_job_file(job_id, path)


def _check_folder(job: Job) -> None:
    if job.spec.workdir is not None:
        raise NotFound(f"Job {job.id} has no private folder.", "Its files are in its working directory.")
