"""The jobs that build an image and push it. They run as the person, so what they make is that person's alone."""

import shutil

from heliostat.engines.environment import environment_folder
from heliostat.errors import Conflict
from heliostat.models import Job, JobSpec, JobState
from heliostat.models.environments import IMAGE_BUILD, PUSH, Software
from heliostat.models.images import ARCHIVE, SIF, stored_name
from heliostat.runtimes.contract import TOOL_PATH
from heliostat.runtimes.image_building import ImageRecipe, Shipment, image_script, push_script
from heliostat.runtimes.policy import rules_of
from heliostat.services.context import Context
from heliostat.services.environments.building import build_resources
from heliostat.services.environments.image_contents import (
    CONTAINERFILE,
    DEFINITION,
    NAME,
    UPLOAD,
    checked_containerfile,
    inline_files,
)

_LIMIT_SECONDS = 4 * 3600
_RETRIES = 2  # when its node dies


def draft_image_build(context: Context, who: tuple[str, str, str], software: Software, digest: str) -> Job:
    """The job that builds it, but for its number; `who` are the user, their Unix user and the project.

    The rules of the admins may have changed since it was asked for first, so its file is looked at again.
    """
    texts = dict(software.files)
    _check_tool(context, "podman" if software.kind == "image" else "apptainer")
    if software.kind == "image":
        begun = checked_containerfile(texts[CONTAINERFILE], rules_of(context.settings))
        text, bases = begun.text, begun.bases
    else:
        text, bases = texts[DEFINITION], ()
    recipe = ImageRecipe(
        kind=software.kind,
        name=stored_name(texts[NAME], digest),
        text=text,
        files=tuple(inline_files(software)),
        has_context=UPLOAD in texts,
        bases=tuple(base for base in bases if not base.startswith("localhost/")),
    )
    spec = JobSpec(script=image_script(recipe, _base(context)), upload=texts.get(UPLOAD))
    return _job(context, who, (IMAGE_BUILD, f"image {texts[NAME]}"), spec, digest)


def draft_push(
    context: Context, who: tuple[str, str, str], image: tuple[str, str], target: str, login: str | None
) -> Job:
    """The job that pushes the image of this name and digest, but for its number."""
    _check_tool(context, "podman")
    name, digest = image
    shipment = Shipment(
        name=stored_name(name, digest),
        archive=f"{environment_folder(str(context.settings.home.path), digest)}/{ARCHIVE}",
        target=target,
        login=login,
    )
    spec = JobSpec(script=push_script(shipment, _base(context)))
    return _job(context, who, (PUSH, f"push {name}"), spec, digest)


def image_of_job(context: Context, software: Software, digest: str) -> tuple[str, str | None]:
    """What a job names to run in it, and the runtime if only one can."""
    if software.kind == "definition":
        return f"{environment_folder(str(context.settings.home.path), digest)}/{SIF}", "apptainer"
    return stored_name(dict(software.files)[NAME], digest), None


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
        time_limit_seconds=min(_LIMIT_SECONDS, context.settings.max_time_limit_seconds),
        max_retries=_RETRIES if what[0] == IMAGE_BUILD else 0,
        environment=digest,
    )


def _base(context: Context) -> str:
    """On nodes that are not this machine the number of the Unix user is known there."""
    return f"{context.settings.container_scratch}/heliostat-"


def _check_tool(context: Context, program: str) -> None:
    """Of nodes elsewhere nothing is known; their script says so."""
    if not context.engine.capabilities.runs_here or shutil.which(program, path=TOOL_PATH) is not None:
        return
    raise Conflict(
        f"{program}, which builds images, is not installed on this machine.",
        f"An admin can install it: apt install {program}. Environments need no image: helio run --env FILE.",
        code="no_builder",
    )
