"""The jobs that build an image and push it. They run as the person, so what they make is that person's alone."""

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

_LIMIT_SECONDS = 4 * 3600
_RETRIES = 2  # when its node dies


def draft_image_build_job(
    context: Context, who: tuple[str, str, str], software: EnvironmentSpec, digest: str
) -> Job:
    """The job that builds it, but for its number; `who` are the user, their Unix user and the project.

    The rules of the admins may have changed since it was asked for first, so its file is looked at again.
    """
    texts = dict(software.files)
    _check_tool(context, "podman" if software.kind == "image" else "apptainer")
    if software.kind == "image":
        begun = validate_containerfile(texts[CONTAINERFILE_ENTRY], make_container_policy(context.settings))
        text, bases = begun.text, begun.base_images
    else:
        text, bases = texts[DEFINITION_ENTRY], ()
    recipe = ImageRecipe(
        kind=software.kind,
        name=local_image_name(texts[NAME_ENTRY], digest),
        text=text,
        files=tuple(inline_files(software)),
        has_context=UPLOAD_ENTRY in texts,
        bases=tuple(base for base in bases if not base.startswith("localhost/")),
    )
    spec = JobSpec(script=render_image_build(recipe, _base(context)), upload=texts.get(UPLOAD_ENTRY))
    return _job(context, who, (IMAGE_BUILD_JOB, f"image {texts[NAME_ENTRY]}"), spec, digest)


def draft_push_job(
    context: Context, who: tuple[str, str, str], image: tuple[str, str], target: str, login: str | None
) -> Job:
    """The job that pushes the image of this name and digest, but for its number."""
    _check_tool(context, "podman")
    name, digest = image
    shipment = ImagePushInputs(
        name=local_image_name(name, digest),
        archive=f"{environment_folder(str(context.settings.home.path), digest)}/{IMAGE_ARCHIVE_FILE}",
        target=target,
        login_folder=login,
    )
    spec = JobSpec(script=render_image_push(shipment, _base(context)))
    return _job(context, who, (IMAGE_PUSH_JOB, f"push {name}"), spec, digest)


def image_and_runtime_of(context: Context, software: EnvironmentSpec, digest: str) -> tuple[str, str | None]:
    """What a job names to run in it, and the runtime if only one can."""
    if software.kind == "definition":
        return f"{environment_folder(str(context.settings.home.path), digest)}/{SIF_FILE}", "apptainer"
    return local_image_name(dict(software.files)[NAME_ENTRY], digest), None


def _job(context: Context, who: tuple[str, str, str], what: tuple[str, str], spec: JobSpec, digest: str) -> Job:
    user, unix_user, project = who
    return Job(
        id=0,
        kind=what[0],
        name=what[1],
        state=JobState.PENDING,
        user=user,
        unix_user=unix_user,
        project=project,
        resources=build_resources(context),
        spec=spec,
        submitted_at=context.now(),
        time_limit_seconds=min(_LIMIT_SECONDS, context.settings.queue.max_time_limit_seconds),
        max_retries=_RETRIES if what[0] == IMAGE_BUILD_JOB else 0,
        environment=digest,
    )


def _base(context: Context) -> str:
    """On nodes that are not this machine the number of the Unix user is known there."""
    return f"{context.settings.containers.scratch}/heliostat-"


def _check_tool(context: Context, program: str) -> None:
    """Of nodes elsewhere nothing is known; their script says so."""
    if not context.engine.capabilities.runs_on_server_host or shutil.which(program, path=TOOL_PATH) is not None:
        return
    raise Conflict(
        f"{program}, which builds images, is not installed on this machine.",
        f"An admin can install it: apt install {program}. Environments need no image: helio run --env FILE.",
        code="no_builder",
    )
