"""Environment variables of jobs, and the folders through which jobs of a workflow share files. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from heliostat.models import Attempt, Job, Mount
from heliostat.models.environments import INTERNAL_JOB_KINDS
from heliostat.models.images import IMAGE_ARCHIVE_FILE
from heliostat.models.workflows import WORKFLOW, WorkflowMembership

CHECKPOINT_FILE = "saved"
IMAGE_DIGEST_FILE = ".image"  # in the checkpoint folder: digest of the image of the newest attempt
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

OUTPUT_VALUES_FILE = ".output"  # in a job's folder: lines of KEY=VALUE


@dataclass(frozen=True, slots=True)
class RunAsUser:
    """The Unix user a payload runs as."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


@dataclass(frozen=True, slots=True)
class AttemptContext:
    installation_folder: str  # HELIOSTAT_HOME
    process_mark: str  # value of HELIOSTAT_MARK, by which the attempt's processes are found
    checkpoint_folder: str  # outlives the attempt


def programs_folder(installation: str) -> str:
    """`helio` for jobs, at the end of their PATH: one that an admin has installed comes first."""
    return f"{installation}/bin"


def environment_folder(installation: str, digest: str) -> str:
    """The folder of a built environment, on every node that can read the installation."""
    return f"{installation}/environments/ready/{digest}"


def job_environment_folder(job: Job, installation: str) -> str | None:
    """The folder of the environment this job runs in; None: it uses the node's software or an image."""
    if job.environment is None or job.kind in INTERNAL_JOB_KINDS or job.spec.image is not None:
        return None
    return environment_folder(installation, job.environment)


def built_image_path(job: Job, installation: str) -> str | None:
    """The file of the image this job runs in; None: its image was not built here."""
    if job.environment is None or job.spec.image is None:
        return None
    if job.spec.image.startswith("/"):
        return job.spec.image
    return f"{environment_folder(installation, job.environment)}/{IMAGE_ARCHIVE_FILE}"


def job_variables(
    attempt: Attempt, run_as: RunAsUser, context: AttemptContext, devices: Mapping[str, str]
) -> dict[str, str]:
    """A clean environment: the variables of a login and those that describe the job, none of the server's own."""
    job = attempt.job
    return {
        "HOME": run_as.home,
        "USER": run_as.name,
        "LOGNAME": run_as.name,
        "SHELL": run_as.shell,
        "PATH": f"{DEFAULT_PATH}:{programs_folder(context.installation_folder)}",
        "PYTHONPATH": f"{programs_folder(context.installation_folder)}/python",
        "LANG": "C.UTF-8",
        "HELIOSTAT_HOME": context.installation_folder,
        "HELIOSTAT_JOB_ID": str(job.id),
        "HELIOSTAT_JOB_NAME": job.name,
        "HELIOSTAT_PROJECT": job.project,
        "HELIOSTAT_ATTEMPT": str(job.attempt),
        "HELIOSTAT_ATTEMPT_ID": attempt.id,
        "HELIOSTAT_MARK": context.process_mark,
        "HELIOSTAT_NODE": attempt.node,
        "HELIOSTAT_CPUS": str(job.resources.cpus),
        "HELIOSTAT_MEMORY_MIB": str(job.resources.memory_mib),
        "HELIOSTAT_GPUS": f"{job.resources.gpus:g}",
        "HELIOSTAT_CHECKPOINT_DIR": context.checkpoint_folder,
        "HELIOSTAT_CHECKPOINT_FILE": f"{context.checkpoint_folder}/{CHECKPOINT_FILE}",
        **_software(job, context.installation_folder),
        **devices,
        "OMP_NUM_THREADS": str(job.resources.cpus),
        **_array(job),
        **workflow_variables(job, context.installation_folder),
    }


def _software(job: Job, installation: str) -> dict[str, str]:
    folder = job_environment_folder(job, installation)
    if folder is None:
        return {}
    return {
        "PATH": f"{folder}/bin:{DEFAULT_PATH}:{programs_folder(installation)}",
        "VIRTUAL_ENV": folder,
        "HELIOSTAT_ENVIRONMENT": job.environment or "",
    }


def _array(job: Job) -> dict[str, str]:
    if job.array_id is None:
        return {}
    return {"HELIOSTAT_ARRAY_ID": str(job.array_id), "HELIOSTAT_ARRAY_INDEX": str(job.array_index)}


def job_workflow_membership(job: Job) -> WorkflowMembership | None:
    return job.part if job.part is not None and job.part.of == WORKFLOW else None


def workflow_folder(installation: str, part: WorkflowMembership) -> str:
    return f"{installation}/workflows/{part.number}"


def workflow_job_folder(installation: str, part: WorkflowMembership) -> str:
    return f"{workflow_folder(installation, part)}/{part.key}"


def workflow_variables(job: Job, installation: str) -> dict[str, str]:
    part = job_workflow_membership(job)
    if part is None:
        return {}
    return {
        "HELIOSTAT_WORKFLOW": str(part.number),
        "HELIOSTAT_WORKFLOW_DIR": workflow_folder(installation, part),
        "HELIOSTAT_OUTPUT_DIR": workflow_job_folder(installation, part),
        "HELIOSTAT_OUTPUT": f"{workflow_job_folder(installation, part)}/{OUTPUT_VALUES_FILE}",
    }


def workflow_mounts(job: Job, installation: str) -> list[Mount]:
    """Mounts for a container: the workflow's folder read-only, the job's own folder writable."""
    part = job_workflow_membership(job)
    if part is None:
        return []
    shared, own = workflow_folder(installation, part), workflow_job_folder(installation, part)
    return [Mount(shared, shared, read_only=True), Mount(own, own)]
