"""Pages of software environments: the list, and one environment with its build log."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from heliostat.errors import BadRequest, Conflict
from heliostat.models import Job
from heliostat.models.environments import EnvironmentSpec, EnvironmentState
from heliostat.services.environments import lifecycle as services
from heliostat.services.environments.builds import are_environments_shared
from heliostat.services.environments.lifecycle import EnvironmentView
from heliostat.services.permissions import may_inspect
from heliostat.web.forms import FormState, form_with_errors
from heliostat.web.live_updates import LiveUpdateHub
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep

router = APIRouter()
_ALL = ("Environments", "/environments")
_LOG_BYTES = 64 * 1024
_IN_PROGRESS = (EnvironmentState.WAITING, EnvironmentState.BUILDING)
_STATES = {"waiting": "pending", "building": "running", "ready": "completed", "failed": "failed"}


@dataclass(frozen=True, slots=True)
class EnvironmentRow:
    shown: EnvironmentView
    icon: str  # the job state with the same icon
    packages: str  # the first lines of its requirements
    size_mib: float | None

    @property
    def digest(self) -> str:
        return self.shown.environment.digest


@dataclass(frozen=True, slots=True)
class EnvironmentsView:
    form: FormState
    rows: tuple[EnvironmentRow, ...]
    shows_all_users: bool
    may_show_all_users: bool
    are_shared: bool


@dataclass(frozen=True, slots=True)
class EnvironmentDetailView:
    row: EnvironmentRow
    files: tuple[tuple[str, str], ...]
    log: str
    log_end: int  # in bytes
    is_in_progress: bool
    build_job: Job | None  # None: the user may not see it
    command: str


@router.get("/environments")
def show_environments(
    request: AuthenticatedDep, all_users: Annotated[bool, Query(alias="all")] = False
) -> Response:
    return _list(request, FormState(), all_users=all_users)


@router.post("/environments")
def build_environment(request: AuthenticatedDep, form: FormDep) -> Response:
    try:
        software = EnvironmentSpec("requirements", (("requirements.txt", form.get_raw("environment")),))
        built = services.build_environment(request.context, request.caller, software)
    except (BadRequest, Conflict) as error:
        return _list(request, form_with_errors(form, error, {"environment": ""}, "environment"))
    return redirect(request, f"/environments/{built.environment.digest}")


@router.get("/environments/{digest}")
def show_environment(request: AuthenticatedDep, digest: str) -> Response:
    shown = services.show_environment(request.context, request.caller, digest)
    environment = shown.environment
    build = services.get_build_job(request.context, environment)
    log = services.read_build_log(request.context, request.caller, environment.digest, -_LOG_BYTES)
    view = EnvironmentDetailView(
        row=_row(shown),
        files=tuple(environment.spec.files),
        log=_printable(log.data.decode("utf-8", "replace")),
        log_end=log.offset + len(log.data),
        is_in_progress=shown.state in _IN_PROGRESS,
        build_job=build if build is not None and may_inspect(request.caller.user, build) else None,
        command=f"helio run --env @{environment.digest[:12]} -- python train.py",
    )
    page = PageSpec(
        "environment.html",
        f"Environment {environment.digest[:12]}",
        breadcrumbs=(_ALL,),
        live_topics=("jobs", "rules"),
    )
    return render_page(request, page, view)


@router.get("/environments/{digest}/log/more")
def poll_build_log(
    request: AuthenticatedDep, digest: str, offset: Annotated[int, Query(ge=0, le=2**53)] = 0
) -> Response:
    """Log text from this offset on. `rest_seconds`: when to poll again."""
    shown = services.show_environment(request.context, request.caller, digest)
    part = services.read_build_log(request.context, request.caller, digest, offset)
    hub: LiveUpdateHub = request.http.app.state.live
    body = {
        "text": _printable(part.data.decode("utf-8", "replace")),
        "offset": part.offset + len(part.data),
        "grows": shown.state in _IN_PROGRESS,
        "rest_seconds": hub.poll_interval_seconds,
    }
    return JSONResponse(body, headers=PAGE_HEADERS)


@router.post("/environments/{digest}/remove")
def remove_environment(request: AuthenticatedDep, form: FormDep, digest: str) -> Response:
    is_removed = services.remove_environment(request.context, request.caller, digest)
    message = "Environment removed." if is_removed else "Removed from your list; other users still use it."
    return redirect(request, "/environments", message)


def _list(request: AuthenticatedRequest, form: FormState, *, all_users: bool = False) -> Response:
    found = services.list_environments(request.context, request.caller, all_users=all_users)
    view = EnvironmentsView(
        form,
        tuple(map(_row, found)),
        all_users,
        request.caller.user.is_admin,
        are_environments_shared(request.context),
    )
    page = PageSpec("environments.html", "Environments", live_topics=("jobs", "rules"), status=form.status)
    return render_page(request, page, view)


def _row(shown: EnvironmentView) -> EnvironmentRow:
    environment = shown.environment
    size = None if environment.size_bytes is None else environment.size_bytes / 2**20
    text = next((text for name, text in environment.spec.files if name != "uv.lock"), "")
    return EnvironmentRow(
        shown, _STATES[shown.state.value], ", ".join(text.split("\n")[:8]).strip(", ")[:120], size
    )


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable() or letter == "\n")
