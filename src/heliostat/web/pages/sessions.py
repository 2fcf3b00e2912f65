"""Sessions: those one has, a new one, and one as it comes up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from heliostat.errors import Invalid
from heliostat.models import Job, JobState
from heliostat.models.sessions import SESSION_APPS, ProxyTarget, SessionRequest
from heliostat.services.jobs.control import extend_job, parse_seconds
from heliostat.services.jobs.explanation import explain_job
from heliostat.services.sessions.lifecycle import (
    SessionState,
    list_sessions,
    share_session,
    show_session,
    start_session,
    unshare_session,
)
from heliostat.web.job_page.wait_explanation import WaitExplanation, build_wait_explanation
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep, SubmittedForm
from heliostat.web.view_models import JOB_ID_PATH

router = APIRouter()
_FIELDS = ("gpus", "cpus", "memory", "time_limit", "project", "workdir", "command")


@dataclass(frozen=True, slots=True)
class SessionRow:
    id: int
    name: str
    app: str
    state: str
    is_up: bool
    url: str
    submitted_at: datetime
    ends_at: datetime | None
    owner: str  # of one that is shared; empty: it is yours


@dataclass(frozen=True, slots=True)
class SessionsView:
    rows: tuple[SessionRow, ...]


@dataclass(frozen=True, slots=True)
class NewSessionView:
    app: str = "jupyter"
    field_texts: Mapping[str, str] = field(default_factory=dict)
    field_errors: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class SessionView:
    row: SessionRow
    job: Job
    wait_explanation: WaitExplanation | None
    step: str  # what it does now, in a sentence
    needs_refresh: bool
    log_tail: str
    warning: str
    shared_with: tuple[str, ...]
    may_share: bool


@router.get("/sessions")
def show_sessions(visit: AuthenticatedDep) -> Response:
    rows = tuple(_row(visit, state) for state in list_sessions(visit.context, visit.caller))
    return render_page(visit, PageSpec("sessions.html", "Sessions", live_topics=("jobs",)), SessionsView(rows))


@router.get("/sessions/new")
def show_session_form(visit: AuthenticatedDep) -> Response:
    return _form(visit, NewSessionView(field_texts={"gpus": "1", "time_limit": "4h"}))


@router.post("/sessions/new")
def submit_session_form(visit: AuthenticatedDep, form: FormDep) -> Response:
    app = form.get("app") if form.get("app") in SESSION_APPS else "jupyter"
    texts = {name: form.get(name) for name in _FIELDS}
    try:
        request = visit.request.app.state.read_job(_body(app, form), to_ask=True)
        state = start_session(visit.context, visit.caller, SessionRequest(app), request)
    except Invalid as error:
        return _form(
            visit, NewSessionView(app, texts, error.fields, f"{error.message} {error.hint or ''}"), error.status
        )
    return redirect(visit, f"/sessions/{state.job.id}")


@router.get("/sessions/" + JOB_ID_PATH)
def show_session_page(visit: AuthenticatedDep, job_id: int, go: bool = False) -> Response:
    """With `go`, straight to it once it is up."""
    state = show_session(visit.context, visit.caller, job_id)
    row = _row(visit, state)
    if go and row.is_up and "x-fragment" not in visit.request.headers:
        return RedirectResponse(row.url, 303, PAGE_HEADERS)
    told = None if row.owner else explain_job(visit.context, visit.caller, job_id)
    view = SessionView(
        row=row,
        job=state.job,
        wait_explanation=build_wait_explanation(told, visit.context.now()) if told else None,
        step=state.step,
        needs_refresh=not state.job.is_terminal,
        log_tail=state.log_tail,
        warning=state.warning,
        shared_with=state.shared_with,
        may_share=not row.owner and visit.context.public_urls.has_host_per_target,
    )
    page = PageSpec(
        "session.html",
        f"Session {job_id}",
        live_topics=(f"job:{job_id}",),
        breadcrumbs=(("Sessions", "/sessions"),),
    )
    return render_page(visit, page, view)


@router.post("/sessions/" + JOB_ID_PATH + "/extend")
def extend_session(visit: AuthenticatedDep, form: FormDep, job_id: int) -> Response:
    job = extend_job(visit.context, visit.caller, job_id, parse_seconds(form.get("time")))
    return redirect(visit, f"/sessions/{job.id}", "It has more time now.")


@router.post("/sessions/" + JOB_ID_PATH + "/share")
def add_share(visit: AuthenticatedDep, form: FormDep, job_id: int) -> Response:
    name = form.get("user").strip()
    share_session(visit.context, visit.caller, job_id, name)
    return redirect(visit, f"/sessions/{job_id}", f"{name} can open it now, and acts there as you.")


@router.post("/sessions/" + JOB_ID_PATH + "/unshare")
def remove_share(visit: AuthenticatedDep, form: FormDep, job_id: int) -> Response:
    unshare_session(visit.context, visit.caller, job_id, form.get("user"))
    return redirect(visit, f"/sessions/{job_id}", "It is not shared with them any more.")


def _form(visit: AuthenticatedRequest, view: NewSessionView, status: int = 200) -> Response:
    crumbs = (("Sessions", "/sessions"),)
    return render_page(visit, PageSpec("new_session.html", "New session", breadcrumbs=crumbs, status=status), view)


def _body(app: str, form: SubmittedForm) -> dict[str, object]:
    """As the API takes it; numbers as numbers, what is empty left out."""
    body: dict[str, object] = {"priority_class": "interactive"}
    for name in _FIELDS:
        text = form.get(name)
        if text and (name != "command" or app == "custom"):
            body[name] = _number(text) if name in ("gpus", "cpus") else text
    return body


def _number(text: str) -> object:
    """What is no number stays as it is, and is refused in the API's words."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _row(visit: AuthenticatedRequest, state: SessionState) -> SessionRow:
    job = state.job
    seen = visit.context.public_urls.for_host(visit.request.headers.get("host", ""))
    ends_at = None
    if job.state is JobState.RUNNING and job.started_at and job.time_limit_seconds:
        ends_at = job.started_at + timedelta(seconds=job.time_limit_seconds)
    address = seen.target_url(ProxyTarget(job.id))
    owner = "" if job.user == visit.user.name else job.user
    return SessionRow(
        job.id, job.name, state.app, job.state.value, state.is_up, address, job.submitted_at, ends_at, owner
    )
