"""Reads workflow and sweep files."""

from pathlib import Path
from typing import Any

from heliostat.cli.document_files import file_error, read_file
from heliostat.cli.job_options import normalize_begin_time
from heliostat.client.request_bodies import with_environment_spec


def read_document_file(file: str) -> dict[str, Any]:
    """The fields of a file. Raises BadParameter if it is not a mapping."""
    content = read_file(file)
    if not isinstance(content, dict):
        raise file_error(file, "it must be a mapping of fields")
    return content


def read_workflow_file(file: str) -> dict[str, Any]:
    content = read_document_file(file)
    jobs = content.get("jobs")
    if isinstance(jobs, dict):
        content["jobs"] = {str(name): normalize_job_template(job, Path.cwd()) for name, job in jobs.items()}
    return content


def normalize_job_template(job: Any, here: Path) -> Any:
    """A job in the form of the API: files of software as content, times as text, absolute paths."""
    if not isinstance(job, dict):
        return job
    normalized = dict(job)
    if isinstance(begin := job.get("begin"), str):
        normalized["begin"] = normalize_begin_time(begin)
    if isinstance(software := job.get("environment"), str) and "${{" not in software:
        normalized = with_environment_spec(normalized)
    if isinstance(workdir := job.get("workdir"), str) and not workdir.startswith(("/", "${{")):
        normalized["workdir"] = str((here / workdir).resolve())
    return normalized
