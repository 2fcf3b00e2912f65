"""What jobs of a workflow hand on as files: a folder for each, which all of them find."""

from heliostat.models import Job, Mount
from heliostat.models.workflows import WORKFLOW, Part

VALUES_FILE = ".output"  # in a job's folder: lines of KEY=VALUE


def workflow_part(job: Job) -> Part | None:
    return job.part if job.part is not None and job.part.of == WORKFLOW else None


def workflow_folder(installation: str, part: Part) -> str:
    return f"{installation}/workflows/{part.number}"


def own_folder(installation: str, part: Part) -> str:
    return f"{workflow_folder(installation, part)}/{part.key}"


def workflow_variables(job: Job, installation: str) -> dict[str, str]:
    part = workflow_part(job)
    if part is None:
        return {}
    return {
        "HELIOSTAT_WORKFLOW": str(part.number),
        "HELIOSTAT_WORKFLOW_DIR": workflow_folder(installation, part),
        "HELIOSTAT_OUTPUT_DIR": own_folder(installation, part),
        "HELIOSTAT_OUTPUT": f"{own_folder(installation, part)}/{VALUES_FILE}",
    }


def workflow_mounts(job: Job, installation: str) -> list[Mount]:
    """In a container: all to be read, its own to be written."""
    part = workflow_part(job)
    if part is None:
        return []
    shared, own = workflow_folder(installation, part), own_folder(installation, part)
    return [Mount(shared, shared, read_only=True), Mount(own, own)]
