"""What is kept of how to repeat a job; and the job once more, under one's own name."""

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

_NOT_AGAIN = ("after", "after_any", "after_failed", "after_each", "begin", "held")


@dataclass(frozen=True, slots=True)
class JobWithProvenance:
    job: Job
    provenance: JobProvenance
    reruns: tuple[JobId, ...] = ()  # the newest that repeat it
    code_tree: FileTree | None = None  # of the code that was uploaded for it, if it is there still


def rerun_fields(job: Job, user: User, request: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """What to submit: `request` asks for the same again, `changes` say what is to be different; None takes away.

    Nobody gets at the values of somebody else's environment variables this way: they have to be given.
    """
    fields = {name: value for name, value in request.items() if name not in _NOT_AGAIN}
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
        fields.pop("environment", None)  # which holds the image it had
    if fields.get("upload") is not None and "upload" in changes:
        fields.pop("workdir", None)
    fields["env"] = {name: value for name, value in env.items() if value is not None}
    _check_values(job, env)
    return {name: value for name, value in fields.items() if value is not None}


def pin_image_digest(kept: JobWithProvenance, fields: Mapping[str, Any]) -> dict[str, Any]:
    """By its digest, where one is known and the name may mean another image by now."""
    image, machine = kept.job.spec.image, kept.provenance.latest_environment
    if image is None or is_image_file(image) or kept.job.environment is not None or fields.get("image") != image:
        return dict(fields)
    if machine is None or machine.image_digest is None:
        return dict(fields)
    return {**fields, "image": f"{parse_image(image).repository}@{machine.image_digest}"}


def rerun_job(
    context: Context, caller: Caller, kept: JobWithProvenance, request: JobRequest, key: str | None = None
) -> SubmissionResult:
    """With the record of the code, as long as that is the same: in a folder it may have changed since."""
    job, upload = kept.job, request.spec.upload
    if upload is not None and upload == job.spec.upload:
        _take_over(context, caller, kept)
        request = replace(request, code=kept.provenance.code)
    return submit_jobs(context, caller, [replace(request, rerun_of=job.id)], key)


def rerun_warnings(kept: JobWithProvenance, request: JobRequest) -> list[str]:
    """What may make it another experiment than it was, in sentences."""
    old, folder = kept.provenance.code, request.spec.workdir
    if request.spec.upload is not None or folder is None or old is None or old.commit is None:
        return []
    if request.code is not None and _state(request.code) == _state(old):
        return []
    then = f"commit {old.commit[:10]}{'' if old.is_clean else ' with uncommitted changes'}"
    return [f"It runs in {folder} as that is now; job {kept.job.id} was submitted at {then}."]


def _state(code: SourceCode) -> tuple[object, ...]:
    return (code.commit, code.diff, code.untracked, code.untracked_count)


def _take_over(context: Context, caller: Caller, kept: JobWithProvenance) -> None:
    """The code of somebody else's job becomes one's own too: whoever may inspect the job may see its code."""
    job = kept.job
    if kept.code_tree is None:
        raise Conflict(
            f"The code that was uploaded for job {job.id} is not there any more.",
            f"Upload it again: helio rerun {job.id} --upload FOLDER.",
        )
    if job.user != caller.user.name:
        context.uploads.copy_tree_to_user(job.user, caller.user.name, kept.code_tree)


def _checked_env(env: object) -> dict[str, str | None]:
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise Invalid("env: must be a set of variables.", 'Write {"SEED": "1"}.', fields={"env": "not variables"})
    return dict(env)


def _check_values(job: Job, env: Mapping[str, object]) -> None:
    if missing := sorted(job.spec.env.keys() - env.keys()):
        raise Invalid(
            f"Job {job.id} of {job.user} has variables whose values only {job.user} sees: {', '.join(missing)}.",
            f"Give them yourself: --set env.{missing[0]}=VALUE; null leaves one out.",
            fields={"env": f"missing {', '.join(missing)}"},
        )


def get_job_with_provenance(context: Context, caller: Caller, job_id: JobId) -> JobWithProvenance:
    """Raises NotFound or Forbidden."""
    job = require_inspectable_job(context, caller, job_id)
    with context.store.read() as conn:
        record, reruns = get_provenance(conn, job_id), list_reruns(conn, job_id)
    tree = None if job.spec.upload is None else context.uploads.find_tree(job.user, job.spec.upload)
    return JobWithProvenance(job, record, tuple(reruns), tree)
