"""The software of jobs: what one has asked for, and one of them with what its build says."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from heliostat.errors import BadRequest, Conflict
from heliostat.models import Job
from heliostat.models.environments import EnvironmentSpec, EnvironmentState
from heliostat.services.environments import lifecycle as services
from heliostat.services.environments.lifecycle import EnvironmentView
from heliostat.services.permissions import may_inspect
from heliostat.web.forms import FormState, form_with_errors
from heliostat.web.live_updates import LiveUpdateHub
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep

router = APIRouter()
_ALL = ("Environments", "/environments")
_LOG_BYTES = 64 * 1024
_UNDER_WAY = (EnvironmentState.WAITING, EnvironmentState.BUILDING)
_STATES = {"waiting": "pending", "building": "running", "ready": "completed", "failed": "failed"}


@dataclass(frozen=True, slots=True)
class EnvironmentRow:
    shown: EnvironmentView
    icon: str  # the state of a job that looks the same
    packages: str  # the first lines of what it is built from
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


@dataclass(frozen=True, slots=True)
class EnvironmentDetailView:
    row: EnvironmentRow
    files: tuple[tuple[str, str], ...]
    log: str
    log_end: int  # in bytes
    is_in_progress: bool
    build_job: Job | None  # if this person may look at it
    command: str


@router.get("/environments")
def show_environments(visit: AuthenticatedDep, all_users: Annotated[bool, Query(alias="all")] = False) -> Response:
    return _list(visit, FormState(), all_users=all_users)


@router.post("/environments")
def build_environment(visit: AuthenticatedDep, form: FormDep) -> Response:
    try:
        software = EnvironmentSpec("requirements", (("requirements.txt", form.get_raw("environment")),))
        made = services.build_environment(visit.context, visit.caller, software)
    except (BadRequest, Conflict) as error:
        return _list(visit, form_with_errors(form, error, {"environment": ""}, "environment"))
    return redirect(visit, f"/environments/{made.environment.digest}")


@router.get("/environments/{digest}")
def show_environment(visit: AuthenticatedDep, digest: str) -> Response:
    shown = services.show_environment(visit.context, visit.caller, digest)
    one = shown.environment
    build = services.get_build_job(visit.context, one)
    log = services.read_build_log(visit.context, visit.caller, one.digest, -_LOG_BYTES)
    view = EnvironmentDetailView(
        row=_row(shown),
        files=tuple(one.spec.files),
        log=_plain(log.data.decode("utf-8", "replace")),
        log_end=log.offset + len(log.data),
        is_in_progress=shown.state in _UNDER_WAY,
        build_job=build if build is not None and may_inspect(visit.caller.user, build) else None,
        command=f"helio run --env @{one.digest[:12]} -- python train.py",
    )
    page = PageSpec(
        "environment.html", f"Environment {one.digest[:12]}", breadcrumbs=(_ALL,), live_topics=("jobs", "rules")
    )
    return render_page(visit, page, view)


@router.get("/environments/{digest}/log/more")
def poll_build_log(
    visit: AuthenticatedDep, digest: str, offset: Annotated[int, Query(ge=0, le=2**53)] = 0
) -> Response:
    """What came since that byte. `rest_seconds`: when to ask again."""
    shown = services.show_environment(visit.context, visit.caller, digest)
    part = services.read_build_log(visit.context, visit.caller, digest, offset)
    hub: LiveUpdateHub = visit.request.app.state.live
    body = {
        "text": _plain(part.data.decode("utf-8", "replace")),
        "offset": part.offset + len(part.data),
        "grows": shown.state in _UNDER_WAY,
        "rest_seconds": hub.poll_interval_seconds,
    }
    return JSONResponse(body, headers=PAGE_HEADERS)


@router.post("/environments/{digest}/remove")
def remove_environment(visit: AuthenticatedDep, form: FormDep, digest: str) -> Response:
    gone = services.remove_environment(visit.context, visit.caller, digest)
    words = "It is removed." if gone else "It is off your list; others still use it."
    return redirect(visit, "/environments", words)


def _list(visit: AuthenticatedRequest, form: FormState, *, all_users: bool = False) -> Response:
    found = services.list_environments(visit.context, visit.caller, all_users=all_users)
    view = EnvironmentsView(form, tuple(map(_row, found)), all_users, visit.caller.user.is_admin)
    page = PageSpec("environments.html", "Environments", live_topics=("jobs", "rules"), status=form.status)
    return render_page(visit, page, view)


def _row(shown: EnvironmentView) -> EnvironmentRow:
    one = shown.environment
    size = None if one.size_bytes is None else one.size_bytes / 2**20
    text = next((text for name, text in one.spec.files if name != "uv.lock"), "")
    return EnvironmentRow(
        shown, _STATES[shown.state.value], ", ".join(text.split("\n")[:8]).strip(", ")[:120], size
    )


def _plain(text: str) -> str:
    return "".join(sign for sign in text if sign.isprintable() or sign == "\n")
