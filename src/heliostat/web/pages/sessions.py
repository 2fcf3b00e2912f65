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
from heliostat.web.job.waiting import Waiting, waiting
from heliostat.web.rendering import HEADERS, Page, redirect, render
from heliostat.web.views import JOB
from heliostat.web.visits import Form, FormDep, Visit, VisitDep

router = APIRouter()
_FIELDS = ("gpus", "cpus", "memory", "time_limit", "project", "workdir", "command")


@dataclass(frozen=True, slots=True)
class Row:
    id: int
    name: str
    app: str
    state: str
    is_up: bool
    address: str
    submitted_at: datetime
    ends_at: datetime | None
    owner: str  # of one that is shared; empty: it is yours


@dataclass(frozen=True, slots=True)
class SessionsView:
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class NewView:
    app: str = "jupyter"
    texts: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SessionView:
    row: Row
    job: Job
    waiting: Waiting | None
    step: str  # what it does now, in a sentence
    is_moving: bool
    log_tail: str
    warning: str
    shared_with: tuple[str, ...]
    may_share: bool


@router.get("/sessions")
def show_sessions(visit: VisitDep) -> Response:
    rows = tuple(_row(visit, state) for state in list_sessions(visit.context, visit.caller))
    return render(visit, Page("sessions.html", "Sessions", live=("jobs",)), SessionsView(rows))


@router.get("/sessions/new")
def show_form(visit: VisitDep) -> Response:
    return _form(visit, NewView(texts={"gpus": "1", "time_limit": "4h"}))


@router.post("/sessions/new")
def start(visit: VisitDep, form: FormDep) -> Response:
    app = form.get("app") if form.get("app") in SESSION_APPS else "jupyter"
    texts = {name: form.get(name) for name in _FIELDS}
    try:
        request = visit.request.app.state.read_job(_body(app, form), to_ask=True)
        state = start_session(visit.context, visit.caller, SessionRequest(app), request)
    except Invalid as error:
        return _form(visit, NewView(app, texts, error.fields, f"{error.message} {error.hint or ''}"), error.status)
    return redirect(visit, f"/sessions/{state.job.id}")


@router.get("/sessions/" + JOB)
def show_one(visit: VisitDep, job_id: int, go: bool = False) -> Response:
    """With `go`, straight to it once it is up."""
    state = show_session(visit.context, visit.caller, job_id)
    row = _row(visit, state)
    if go and row.is_up and "x-fragment" not in visit.request.headers:
        return RedirectResponse(row.address, 303, HEADERS)
    told = None if row.owner else explain_job(visit.context, visit.caller, job_id)
    view = SessionView(
        row=row,
        job=state.job,
        waiting=waiting(told, visit.context.now()) if told else None,
        step=state.step,
        is_moving=not state.job.is_terminal,
        log_tail=state.log_tail,
        warning=state.warning,
        shared_with=state.shared_with,
        may_share=not row.owner and visit.context.public_urls.has_host_per_target,
    )
    page = Page("session.html", f"Session {job_id}", live=(f"job:{job_id}",), crumbs=(("Sessions", "/sessions"),))
    return render(visit, page, view)


@router.post("/sessions/" + JOB + "/extend")
def extend(visit: VisitDep, form: FormDep, job_id: int) -> Response:
    job = extend_job(visit.context, visit.caller, job_id, parse_seconds(form.get("time")))
    return redirect(visit, f"/sessions/{job.id}", "It has more time now.")


@router.post("/sessions/" + JOB + "/share")
def share(visit: VisitDep, form: FormDep, job_id: int) -> Response:
    name = form.get("user").strip()
    share_session(visit.context, visit.caller, job_id, name)
    return redirect(visit, f"/sessions/{job_id}", f"{name} can open it now, and acts there as you.")


@router.post("/sessions/" + JOB + "/unshare")
def unshare(visit: VisitDep, form: FormDep, job_id: int) -> Response:
    unshare_session(visit.context, visit.caller, job_id, form.get("user"))
    return redirect(visit, f"/sessions/{job_id}", "It is not shared with them any more.")


def _form(visit: Visit, view: NewView, status: int = 200) -> Response:
    crumbs = (("Sessions", "/sessions"),)
    return render(visit, Page("new_session.html", "New session", crumbs=crumbs, status=status), view)


def _body(app: str, form: Form) -> dict[str, object]:
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


def _row(visit: Visit, state: SessionState) -> Row:
    job = state.job
    seen = visit.context.public_urls.for_host(visit.request.headers.get("host", ""))
    ends_at = None
    if job.state is JobState.RUNNING and job.started_at and job.time_limit_seconds:
        ends_at = job.started_at + timedelta(seconds=job.time_limit_seconds)
    address = seen.target_url(ProxyTarget(job.id))
    owner = "" if job.user == visit.user.name else job.user
    return Row(
        job.id, job.name, state.app, job.state.value, state.is_up, address, job.submitted_at, ends_at, owner
    )
