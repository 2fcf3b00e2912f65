"""Reruns: a job's provenance, and submitting it again as the caller."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from heliostat.errors import Conflict, Invalid
from heliostat.models import Caller, Job, JobId, JobRequest, User
from heliostat.models.provenance import JobProvenance, SourceCode
from heliostat.models.uploads import FileTree
from heliostat.runtimes.image_names import is_image_file, parse_image
from heliostat.services.context import Context
from heliostat.services.jobs.submission import SubmissionResult, submit_jobs
from heliostat.services.permissions import may_see_env_values, require_inspectable_job
from heliostat.store.provenance import get_provenance, list_reruns

_FIELDS_NOT_REPEATED = ("after", "after_any", "after_failed", "after_each", "begin", "held")


@dataclass(frozen=True, slots=True)
class JobWithProvenance:
    job: Job
    provenance: JobProvenance
    reruns: tuple[JobId, ...] = ()  # the newest reruns of it
    code_tree: FileTree | None = None  # the uploaded code; None: no upload, or deleted


def rerun_fields(job: Job, user: User, request: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields to submit: those of `request`, replaced by `changes`; a change to None removes a field.

    Values of another user's environment variables are not copied: the caller has to supply them.
    """
    fields = {name: value for name, value in request.items() if name not in _FIELDS_NOT_REPEATED}
    if job.array_index is not None:
        fields["array"] = str(job.array_index)
    if not may_see_env_values(user, job):
        fields.pop("env", None)
    if job.project not in {membership.project for membership in user.memberships} and not user.is_admin:
        fields.pop("project", None)
    if job.priority > 0 and not user.may_manage(job.project):
        fields.pop("priority", None)
    env = {**fields.get("env", {}), **_checked_env(changes.get("env"))}
    fields |= {name: value for name, value in changes.items() if name != "env"}
    if "image" in changes and "environment" not in changes and job.spec.image is not None:
        fields.pop("environment", None)  # it contains the old image
    if fields.get("upload") is not None and "upload" in changes:
        fields.pop("workdir", None)
    fields["env"] = {name: value for name, value in env.items() if value is not None}
    _check_values(job, env)
    return {name: value for name, value in fields.items() if value is not None}


def pin_image_digest(source: JobWithProvenance, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the image name by its digest, if the digest is known and the name may refer to another image now."""
    image, environment = source.job.spec.image, source.provenance.latest_environment
    if image is None or is_image_file(image) or source.job.environment is not None or fields.get("image") != image:
        return dict(fields)
    if environment is None or environment.image_digest is None:
        return dict(fields)
    return {**fields, "image": f"{parse_image(image).repository}@{environment.image_digest}"}


def rerun_job(
    context: Context, caller: Caller, source: JobWithProvenance, request: JobRequest, key: str | None = None
) -> SubmissionResult:
    """Copies the code record only if the upload is the same: code in a folder may have changed."""
    job, upload = source.job, request.spec.upload
    if upload is not None and upload == job.spec.upload:
        _copy_code(context, caller, source)
        request = replace(request, code=source.provenance.code)
    return submit_jobs(context, caller, [replace(request, rerun_of=job.id)], key)


def rerun_warnings(source: JobWithProvenance, request: JobRequest) -> list[str]:
    """Sentences about differences to the first run."""
    old, folder = source.provenance.code, request.spec.workdir
    if request.spec.upload is not None or folder is None or old is None or old.commit is None:
        return []
    if request.code is not None and _code_state(request.code) == _code_state(old):
        return []
    then = f"commit {old.commit[:10]}{'' if old.is_clean else ' with uncommitted changes'}"
    return [f"The rerun uses the current content of {folder}; job {source.job.id} was submitted at {then}."]


def _code_state(code: SourceCode) -> tuple[object, ...]:
    return (code.commit, code.diff, code.untracked, code.untracked_count)


def _copy_code(context: Context, caller: Caller, source: JobWithProvenance) -> None:
    """Give the caller a copy of the uploaded code of another user's job. The caller may inspect it already."""
    job = source.job
    if source.code_tree is None:
        raise Conflict(
            f"The code that was uploaded for job {job.id} has been deleted.",
            f"Upload it again: helio rerun {job.id} --upload FOLDER.",
        )
    if job.user != caller.user.name:
        context.uploads.copy_tree_to_user(job.user, caller.user.name, source.code_tree)


def _checked_env(env: object) -> dict[str, str | None]:
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise Invalid(
            "env must map names of variables to values.", 'Write {"SEED": "1"}.', fields={"env": "not a mapping"}
        )
    return dict(env)


def _check_values(job: Job, env: Mapping[str, object]) -> None:
    if missing := sorted(job.spec.env.keys() - env.keys()):
        raise Invalid(
            f"Job {job.id} has variables whose values only {job.user} can see: {', '.join(missing)}.",
            f"Set them: --set env.{missing[0]}=VALUE; null omits a variable.",
            fields={"env": f"missing {', '.join(missing)}"},
        )


def get_job_with_provenance(context: Context, caller: Caller, job_id: JobId) -> JobWithProvenance:
    """Raises NotFound or Forbidden."""
    job = require_inspectable_job(context, caller, job_id)
    with context.store.read() as conn:
        record, reruns = get_provenance(conn, job_id), list_reruns(conn, job_id)
    tree = None if job.spec.upload is None else context.uploads.find_tree(job.user, job.spec.upload)
    return JobWithProvenance(job, record, tuple(reruns), tree)
