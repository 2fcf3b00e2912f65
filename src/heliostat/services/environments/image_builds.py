"""Jobs that build and push images. They run as the user, so the result belongs to that user only."""

import shutil

from heliostat.engines.job_variables import environment_folder
from heliostat.errors import Conflict
from heliostat.models import Job, JobSpec, JobState
from heliostat.models.environments import IMAGE_BUILD_JOB, IMAGE_PUSH_JOB, EnvironmentSpec
from heliostat.models.images import IMAGE_ARCHIVE_FILE, SIF_FILE, local_image_name
from heliostat.runtimes.container_policy import make_container_policy
from heliostat.runtimes.contract import TOOL_PATH
from heliostat.runtimes.image_build import ImagePushInputs, ImageRecipe, render_image_build, render_image_push
from heliostat.services.context import Context
from heliostat.services.environments.builds import build_resources
from heliostat.services.environments.image_definitions import (
    CONTAINERFILE_ENTRY,
    DEFINITION_ENTRY,
    NAME_ENTRY,
    UPLOAD_ENTRY,
    inline_files,
    validate_containerfile,
)

_TIME_LIMIT_SECONDS = 4 * 3600
_RETRIES = 2  # when its node dies


def draft_image_build_job(
    context: Context, owner: tuple[str, str, str], environment_spec: EnvironmentSpec, digest: str
) -> Job:
    """The build job without an id; `who`: user, Unix user and project.

    The file is validated again, because the admins' rules may have changed since the first request.
    """
    texts = dict(environment_spec.files)
    _check_tool(context, "podman" if environment_spec.kind == "image" else "apptainer")
    if environment_spec.kind == "image":
        resolved = validate_containerfile(texts[CONTAINERFILE_ENTRY], make_container_policy(context.settings))
        text, bases = resolved.text, resolved.base_images
    else:
        text, bases = texts[DEFINITION_ENTRY], ()
    recipe = ImageRecipe(
        kind=environment_spec.kind,
        name=local_image_name(texts[NAME_ENTRY], digest),
        text=text,
        files=tuple(inline_files(environment_spec)),
        has_context=UPLOAD_ENTRY in texts,
        bases=tuple(base for base in bases if not base.startswith("localhost/")),
    )
    spec = JobSpec(script=render_image_build(recipe, _scratch_prefix(context)), upload=texts.get(UPLOAD_ENTRY))
    return _job(context, owner, (IMAGE_BUILD_JOB, f"image {texts[NAME_ENTRY]}"), spec, digest)


def draft_push_job(
    context: Context, owner: tuple[str, str, str], image: tuple[str, str], target: str, login: str | None
) -> Job:
    """The job that pushes the image with this name and digest, without an id."""
    _check_tool(context, "podman")
    name, digest = image
    inputs = ImagePushInputs(
        name=local_image_name(name, digest),
        archive=f"{environment_folder(str(context.settings.home.path), digest)}/{IMAGE_ARCHIVE_FILE}",
        target=target,
        login_folder=login,
    )
    spec = JobSpec(script=render_image_push(inputs, _scratch_prefix(context)))
    return _job(context, owner, (IMAGE_PUSH_JOB, f"push {name}"), spec, digest)


def image_and_runtime_of(
    context: Context, environment_spec: EnvironmentSpec, digest: str
) -> tuple[str, str | None]:
    """The image name for a job, and the runtime if only one can run it."""
    if environment_spec.kind == "definition":
        return f"{environment_folder(str(context.settings.home.path), digest)}/{SIF_FILE}", "apptainer"
    return local_image_name(dict(environment_spec.files)[NAME_ENTRY], digest), None


def _job(
    context: Context, owner: tuple[str, str, str], kind_and_name: tuple[str, str], spec: JobSpec, digest: str
) -> Job:
    user, unix_user, project = owner
    return Job(
        id=0,
        kind=kind_and_name[0],
        name=kind_and_name[1],
        state=JobState.PENDING,
        user=user,
        unix_user=unix_user,
        project=project,
        resources=build_resources(context),
        spec=spec,
        submitted_at=context.now(),
        time_limit_seconds=min(_TIME_LIMIT_SECONDS, context.settings.queue.max_time_limit_seconds),
        max_retries=_RETRIES if kind_and_name[0] == IMAGE_BUILD_JOB else 0,
        environment=digest,
    )


def _scratch_prefix(context: Context) -> str:
    """A prefix: the script appends the uid, which may differ between nodes."""
    return f"{context.settings.containers.scratch}/heliostat-"


def _check_tool(context: Context, program: str) -> None:
    """Only on the server's own host; on other nodes the script reports a missing tool."""
    if not context.engine.capabilities.runs_on_server_host or shutil.which(program, path=TOOL_PATH) is not None:
        return
    raise Conflict(
        f"{program}, which builds images, is not installed on this server.",
        f"An admin can install it: apt install {program}. Environments need no image: helio run --env FILE.",
        code="no_builder",
    )
