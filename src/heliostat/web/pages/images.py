"""Images that people build: one's own, and one of them with what its build says and where it was pushed."""

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
_UNDER_WAY = (EnvironmentState.WAITING, EnvironmentState.BUILDING)
_ICONS = {"waiting": "pending", "building": "running", "ready": "completed", "failed": "failed"}
_HIDDEN = ("name", "upload")  # what is no file, of the files it is built from


@dataclass(frozen=True, slots=True)
class ImageRow:
    image: ImageView
    icon: str  # the state of a job that looks the same
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
    build_job: Job | None  # if this person may look at it
    is_mine: bool
    command: str


@router.get("/images")
def show_images(visit: AuthenticatedDep, all_users: Annotated[bool, Query(alias="all")] = False) -> Response:
    return _list(visit, FormState(), all_users=all_users)


@router.post("/images")
def build_image(visit: AuthenticatedDep, form: FormDep) -> Response:
    wish = ImageBuildRequest(form.get_raw("name").strip(), form.get_raw("containerfile"))
    try:
        made = images.build_image(visit.context, visit.caller, wish)
    except (BadRequest, Conflict) as error:
        return _list(visit, form_with_errors(form, error, {}, "containerfile"))
    return redirect(visit, f"/images/{made.digest}")


@router.get("/images/{name}")
def show_image(visit: AuthenticatedDep, name: str) -> Response:
    return _one(visit, name, FormState())


@router.get("/images/{name}/log/more")
def poll_build_log(
    visit: AuthenticatedDep, name: str, offset: Annotated[int, Query(ge=0, le=2**53)] = 0
) -> Response:
    """What came since that byte. `rest_seconds`: when to ask again."""
    shown = images.show_image(visit.context, visit.caller, name).environment_view
    part = environments.read_build_log(visit.context, visit.caller, shown.environment.digest, offset)
    hub: LiveUpdateHub = visit.request.app.state.live
    body = {
        "text": _plain(part.data.decode("utf-8", "replace")),
        "offset": part.offset + len(part.data),
        "grows": shown.state in _UNDER_WAY,
        "rest_seconds": hub.poll_interval_seconds,
    }
    return JSONResponse(body, headers=PAGE_HEADERS)


@router.post("/images/{name}/push")
def push_image(visit: AuthenticatedDep, form: FormDep, name: str) -> Response:
    username, password = form.get_raw("username").strip(), form.get_raw("password")
    login = RegistryLogin(username, password) if username or password else None
    try:
        made = images.push_image(visit.context, visit.caller, name, form.get_raw("target").strip(), login)
    except (BadRequest, Conflict) as error:
        return _one(visit, name, form_with_errors(form, error, {}, "target"))
    return redirect(visit, f"/images/{name}", f"Job {made.job_id} pushes it to {made.target}.")


@router.post("/images/{name}/remove")
def remove_image(visit: AuthenticatedDep, form: FormDep, name: str) -> Response:
    images.remove_image(visit.context, visit.caller, name)
    return redirect(visit, "/images", "It is removed.")


def _list(visit: AuthenticatedRequest, form: FormState, *, all_users: bool = False) -> Response:
    found = images.list_images(visit.context, visit.caller, all_users=all_users)
    view = ImagesView(form, tuple(map(_row, found)), all_users, visit.caller.user.is_admin)
    return render_page(
        visit, PageSpec("images.html", "Images", live_topics=("jobs", "rules"), status=form.status), view
    )


def _one(visit: AuthenticatedRequest, name: str, form: FormState) -> Response:
    image = images.show_image(visit.context, visit.caller, name)
    one, user = image.environment_view.environment, visit.caller.user
    build = environments.get_build_job(visit.context, one)
    log = environments.read_build_log(visit.context, visit.caller, one.digest, -_LOG_BYTES)
    view = ImageDetailView(
        row=_row(image),
        form=form,
        files=tuple((name, text) for name, text in one.spec.files if name not in _HIDDEN),
        pushes=image.pushes,
        log=_plain(log.data.decode("utf-8", "replace")),
        log_end=log.offset + len(log.data),
        is_in_progress=image.environment_view.state in _UNDER_WAY,
        build_job=build if build is not None and may_inspect(user, build) else None,
        is_mine=one.owner == user.name,
        command=f"helio run --env image:{image.built_as} -- python train.py",
    )
    page = PageSpec(
        "image.html",
        f"Image {image.built_as}",
        breadcrumbs=(_ALL,),
        live_topics=("jobs", "rules"),
        status=form.status,
    )
    return render_page(visit, page, view)


def _row(image: ImageView) -> ImageRow:
    one = image.environment_view.environment
    size = None if one.size_bytes is None else one.size_bytes / 2**20
    return ImageRow(image, _ICONS[image.environment_view.state.value], size)


def _plain(text: str) -> str:
    return "".join(sign for sign in text if sign.isprintable() or sign == "\n")
