"""Pages of container images: the list, and one image with its build log and pushes."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from heliostat.errors import BadRequest, Conflict
from heliostat.models import Job
from heliostat.models.environments import EnvironmentState
from heliostat.models.images import ImagePush
from heliostat.services.environments import images
from heliostat.services.environments import lifecycle as environments
from heliostat.services.environments.images import ImageBuildRequest, ImageView, RegistryLogin
from heliostat.services.permissions import may_inspect
from heliostat.web.forms import FormState, form_with_errors
from heliostat.web.live_updates import LiveUpdateHub
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep

router = APIRouter()
_ALL = ("Images", "/images")
_LOG_BYTES = 64 * 1024
_IN_PROGRESS = (EnvironmentState.WAITING, EnvironmentState.BUILDING)
_ICONS = {"waiting": "pending", "building": "running", "ready": "completed", "failed": "failed"}
_NOT_FILES = ("name", "upload")  # entries of the spec that are not files


@dataclass(frozen=True, slots=True)
class ImageRow:
    image: ImageView
    icon: str  # the job state with the same icon
    size_mib: float | None

    @property
    def title(self) -> str:
        return ", ".join(self.image.names) or self.image.built_as


@dataclass(frozen=True, slots=True)
class ImagesView:
    form: FormState
    rows: tuple[ImageRow, ...]
    shows_all_users: bool
    may_show_all_users: bool


@dataclass(frozen=True, slots=True)
class ImageDetailView:
    row: ImageRow
    form: FormState
    files: tuple[tuple[str, str], ...]
    pushes: tuple[ImagePush, ...]
    log: str
    log_end: int  # in bytes
    is_in_progress: bool
    build_job: Job | None  # None: the user may not see it
    is_mine: bool
    command: str


@router.get("/images")
def show_images(request: AuthenticatedDep, all_users: Annotated[bool, Query(alias="all")] = False) -> Response:
    return _list(request, FormState(), all_users=all_users)


@router.post("/images")
def build_image(request: AuthenticatedDep, form: FormDep) -> Response:
    build_request = ImageBuildRequest(form.get_raw("name").strip(), form.get_raw("containerfile"))
    try:
        result = images.build_image(request.context, request.caller, build_request)
    except (BadRequest, Conflict) as error:
        return _list(request, form_with_errors(form, error, {}, "containerfile"))
    return redirect(request, f"/images/{result.digest}")


@router.get("/images/{name}")
def show_image(request: AuthenticatedDep, name: str) -> Response:
    return _page(request, name, FormState())


@router.get("/images/{name}/log/more")
def poll_build_log(
    request: AuthenticatedDep, name: str, offset: Annotated[int, Query(ge=0, le=2**53)] = 0
) -> Response:
    """Log text from this offset on. `rest_seconds`: when to poll again."""
    shown = images.show_image(request.context, request.caller, name).environment_view
    part = environments.read_build_log(request.context, request.caller, shown.environment.digest, offset)
    hub: LiveUpdateHub = request.http.app.state.live
    body = {
        "text": _printable(part.data.decode("utf-8", "replace")),
        "offset": part.offset + len(part.data),
        "grows": shown.state in _IN_PROGRESS,
        "rest_seconds": hub.poll_interval_seconds,
    }
    return JSONResponse(body, headers=PAGE_HEADERS)


@router.post("/images/{name}/push")
def push_image(request: AuthenticatedDep, form: FormDep, name: str) -> Response:
    username, password = form.get_raw("username").strip(), form.get_raw("password")
    login = RegistryLogin(username, password) if username or password else None
    try:
        result = images.push_image(request.context, request.caller, name, form.get_raw("target").strip(), login)
    except (BadRequest, Conflict) as error:
        return _page(request, name, form_with_errors(form, error, {}, "target"))
    return redirect(request, f"/images/{name}", f"Job {result.job_id} pushes the image to {result.target}.")


@router.post("/images/{name}/remove")
def remove_image(request: AuthenticatedDep, form: FormDep, name: str) -> Response:
    images.remove_image(request.context, request.caller, name)
    return redirect(request, "/images", "Image removed.")


def _list(request: AuthenticatedRequest, form: FormState, *, all_users: bool = False) -> Response:
    found = images.list_images(request.context, request.caller, all_users=all_users)
    view = ImagesView(form, tuple(map(_row, found)), all_users, request.caller.user.is_admin)
    return render_page(
        request, PageSpec("images.html", "Images", live_topics=("jobs", "rules"), status=form.status), view
    )


def _page(request: AuthenticatedRequest, name: str, form: FormState) -> Response:
    image = images.show_image(request.context, request.caller, name)
    environment, user = image.environment_view.environment, request.caller.user
    build = environments.get_build_job(request.context, environment)
    log = environments.read_build_log(request.context, request.caller, environment.digest, -_LOG_BYTES)
    view = ImageDetailView(
        row=_row(image),
        form=form,
        files=tuple((name, text) for name, text in environment.spec.files if name not in _NOT_FILES),
        pushes=image.pushes,
        log=_printable(log.data.decode("utf-8", "replace")),
        log_end=log.offset + len(log.data),
        is_in_progress=image.environment_view.state in _IN_PROGRESS,
        build_job=build if build is not None and may_inspect(user, build) else None,
        is_mine=environment.owner == user.name,
        command=f"helio run --env image:{image.built_as} -- python train.py",
    )
    page = PageSpec(
        "image.html",
        f"Image {image.built_as}",
        breadcrumbs=(_ALL,),
        live_topics=("jobs", "rules"),
        status=form.status,
    )
    return render_page(request, page, view)


def _row(image: ImageView) -> ImageRow:
    environment = image.environment_view.environment
    size = None if environment.size_bytes is None else environment.size_bytes / 2**20
    return ImageRow(image, _ICONS[image.environment_view.state.value], size)


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable() or letter == "\n")
