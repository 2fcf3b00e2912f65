"""Pages of interactive sessions: list, form for a new session, and one session."""

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
from heliostat.services.sessions.session_apps import SessionApp, list_session_apps
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
    owner: str  # of a shared session; empty: your own


@dataclass(frozen=True, slots=True)
class SessionsView:
    rows: tuple[SessionRow, ...]


@dataclass(frozen=True, slots=True)
class SessionForm:
    app: str = "jupyter"
    field_texts: Mapping[str, str] = field(default_factory=dict)
    field_errors: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class NewSessionView:
    form: SessionForm
    app_options: tuple[tuple[str, str], ...]
    missing_apps: tuple[SessionApp, ...]
    app_hint: str


@dataclass(frozen=True, slots=True)
class SessionView:
    row: SessionRow
    job: Job
    wait_explanation: WaitExplanation | None
    step: str  # current step, as a sentence
    needs_refresh: bool
    log_tail: str
    warning: str
    shared_with: tuple[str, ...]
    may_share: bool


@router.get("/sessions")
def show_sessions(request: AuthenticatedDep) -> Response:
    rows = tuple(_row(request, state) for state in list_sessions(request.context, request.caller))
    return render_page(request, PageSpec("sessions.html", "Sessions", live_topics=("jobs",)), SessionsView(rows))


@router.get("/sessions/new")
def show_session_form(request: AuthenticatedDep) -> Response:
    return _form(request, SessionForm(field_texts={"gpus": "1", "time_limit": "4h"}))


@router.post("/sessions/new")
def submit_session_form(request: AuthenticatedDep, form: FormDep) -> Response:
    app = form.get("app") if form.get("app") in SESSION_APPS else "jupyter"
    texts = {name: form.get(name) for name in _FIELDS}
    try:
        job_request = request.http.app.state.read_job(_body(app, form), for_forecast=True)
        state = start_session(request.context, request.caller, SessionRequest(app), job_request)
    except Invalid as error:
        form_state = SessionForm(app, texts, error.fields, f"{error.message} {error.hint or ''}")
        return _form(request, form_state, error.status)
    return redirect(request, f"/sessions/{state.job.id}")


@router.get("/sessions/" + JOB_ID_PATH)
def show_session_page(request: AuthenticatedDep, job_id: int, go: bool = False) -> Response:
    """With `go`, redirects to the session once it is up."""
    state = show_session(request.context, request.caller, job_id)
    row = _row(request, state)
    if go and row.is_up and "x-fragment" not in request.http.headers:
        return RedirectResponse(row.url, 303, PAGE_HEADERS)
    explanation = None if row.owner else explain_job(request.context, request.caller, job_id)
    view = SessionView(
        row=row,
        job=state.job,
        wait_explanation=build_wait_explanation(explanation, request.context.now()) if explanation else None,
        step=state.step,
        needs_refresh=not state.job.is_terminal,
        log_tail=state.log_tail,
        warning=state.warning,
        shared_with=state.shared_with,
        may_share=not row.owner and request.context.public_urls.has_host_per_target,
    )
    page = PageSpec(
        "session.html",
        f"Session {job_id}",
        live_topics=(f"job:{job_id}",),
        breadcrumbs=(("Sessions", "/sessions"),),
    )
    return render_page(request, page, view)


@router.post("/sessions/" + JOB_ID_PATH + "/extend")
def extend_session(request: AuthenticatedDep, form: FormDep, job_id: int) -> Response:
    job = extend_job(request.context, request.caller, job_id, parse_seconds(form.get("time")))
    return redirect(request, f"/sessions/{job.id}", "Time limit extended.")


@router.post("/sessions/" + JOB_ID_PATH + "/share")
def add_share(request: AuthenticatedDep, form: FormDep, job_id: int) -> Response:
    name = form.get("user").strip()
    share_session(request.context, request.caller, job_id, name)
    return redirect(request, f"/sessions/{job_id}", f"Shared with {name}, who acts in it as you.")


@router.post("/sessions/" + JOB_ID_PATH + "/unshare")
def remove_share(request: AuthenticatedDep, form: FormDep, job_id: int) -> Response:
    unshare_session(request.context, request.caller, job_id, form.get("user"))
    return redirect(request, f"/sessions/{job_id}", "Sharing removed.")


def _form(request: AuthenticatedRequest, form: SessionForm, status: int = 200) -> Response:
    breadcrumbs = (("Sessions", "/sessions"),)
    apps = list_session_apps(request.context)
    view = NewSessionView(
        form=form,
        app_options=tuple((app.name, app.title) for app in apps.available),
        missing_apps=apps.missing,
        app_hint="" if apps.is_checked else "VS Code and RStudio must be installed on the nodes.",
    )
    return render_page(
        request, PageSpec("new_session.html", "New session", breadcrumbs=breadcrumbs, status=status), view
    )


def _body(app: str, form: SubmittedForm) -> dict[str, object]:
    """Body for the API: numbers parsed, empty fields omitted."""
    body: dict[str, object] = {"priority_class": "interactive"}
    for name in _FIELDS:
        text = form.get(name)
        if text and (name != "command" or app == "custom"):
            body[name] = _number(text) if name in ("gpus", "cpus") else text
    return body


def _number(text: str) -> object:
    """Text that is not a number is returned unchanged; the API then rejects it."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _row(request: AuthenticatedRequest, state: SessionState) -> SessionRow:
    job = state.job
    urls = request.context.public_urls.for_host(request.http.headers.get("host", ""))
    ends_at = None
    if job.state is JobState.RUNNING and job.started_at and job.time_limit_seconds:
        ends_at = job.started_at + timedelta(seconds=job.time_limit_seconds)
    url = urls.target_url(ProxyTarget(job.id))
    owner = "" if job.user == request.user.name else job.user
    return SessionRow(
        job.id, job.name, state.app, job.state.value, state.is_up, url, job.submitted_at, ends_at, owner
    )
