"""Endpoints of interactive sessions: start, show and share them, and list their notebooks."""

from dataclasses import replace
from typing import Annotated, Literal

from fastapi import Header, Path, Request, Response
from pydantic import BaseModel, Field, StringConstraints
from starlette.responses import JSONResponse

from heliostat.api.access_keys import AccessKeyResponse, addresses_for_caller, issue_access_key
from heliostat.api.field_types import SingleLine
from heliostat.api.job_field_types import Command
from heliostat.api.job_schemas import JobBody
from heliostat.api.request_bodies import BodyRouter, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.api.serialization import serialize_forecast, serialize_job
from heliostat.models.sessions import ProxyTarget, SessionRequest
from heliostat.services.context import Context
from heliostat.services.jobs.control import extend_job, parse_seconds
from heliostat.services.sessions.lifecycle import (
    SessionState,
    list_sessions,
    share_session,
    show_session,
    start_session,
    unshare_session,
)
from heliostat.services.sessions.notebook_files import list_notebooks

router = BodyRouter(tags=["sessions"])
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


class SessionBody(JobBody):
    """A session to start: an app and the fields of a job. `command` is only for the app `custom`."""

    app: Literal["jupyter", "terminal", "vscode", "rstudio", "custom"] = "jupyter"
    keep_idle: bool = Field(default=False, strict=True, description="Keep the session running while it is idle.")
    priority_class: SingleLine = Field(default="interactive", description="Priority class of its job.")
    command: Command = Field(
        default=["jupyter"],
        description="For the app custom: command of a web server that listens on the port in $PORT.",
    )


class ExtendJobBody(RequestBody):
    time: Annotated[str, StringConstraints(max_length=32)] | Annotated[int, Field(strict=True, ge=1, le=2**31)]


@router.post(
    "/jobs/{job_id}/extend", summary="Extend the time limit of a session, or of a batch job (managers only)"
)
def extend_time_limit(job_id: IdPath, body: ExtendJobBody, caller: CallerDep, context: ContextDep) -> Response:
    """`time` is added to the time limit: 2h, 30m, or seconds."""
    seconds = body.time if isinstance(body.time, int) else parse_seconds(body.time)
    job = extend_job(context, caller, job_id, seconds)
    return JSONResponse(
        serialize_job(
            job, context.controller.wait_reason(job), serialize_forecast(context.forecaster.forecast_of(job))
        )
    )


@router.post("/sessions", status_code=201, summary="Start a session: JupyterLab, VS Code or any web server")
def create_session(
    body: SessionBody,
    request: Request,
    caller: CallerDep,
    context: ContextDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    job_request = body.to_request()
    if body.app == "custom" and "command" not in body.model_fields_set:
        job_request = replace(job_request, spec=replace(job_request.spec, command=()))
    state = start_session(context, caller, SessionRequest(body.app, body.keep_idle), job_request, idempotency_key)
    return JSONResponse(_view(request, context, state), 201)


@router.get("/sessions", summary="List your sessions, newest first")
def list_own_sessions(
    request: Request, caller: CallerDep, context: ContextDep, unfinished: bool = False
) -> Response:
    sessions = [state for state in list_sessions(context, caller) if not (unfinished and state.job.is_terminal)]
    return JSONResponse({"items": [_view(request, context, state) for state in sessions], "next_cursor": None})


@router.get("/sessions/{job_id}", summary="Show a session: its state and address")
def get_session(job_id: IdPath, request: Request, caller: CallerDep, context: ContextDep) -> Response:
    return JSONResponse(_view(request, context, show_session(context, caller, job_id)))


@router.post("/sessions/{job_id}/key", summary="Create a key for programs that use a session")
def create_session_key(
    job_id: IdPath, request: Request, response: Response, caller: CallerDep, context: ContextDep
) -> AccessKeyResponse:
    """Send it as `Authorization: Bearer KEY`. It is not forwarded to the job."""
    show_session(context, caller, job_id)
    return issue_access_key(ProxyTarget(job_id), request, response, caller, context)


class SessionSharesResponse(BaseModel):
    job_id: int
    shared_with: list[str]


UserPath = Annotated[str, Path(min_length=1, max_length=64)]


@router.put(
    "/sessions/{job_id}/shares/{user}", summary="Give a user access to your session; they act there as you"
)
def add_share(job_id: IdPath, user: UserPath, caller: CallerDep, context: ContextDep) -> SessionSharesResponse:
    """Only if each session has its own host name: `proxy_url` with a star."""
    return SessionSharesResponse(job_id=job_id, shared_with=share_session(context, caller, job_id, user))


@router.delete("/sessions/{job_id}/shares/{user}", summary="Revoke the access of a user to your session")
def remove_share(job_id: IdPath, user: UserPath, caller: CallerDep, context: ContextDep) -> SessionSharesResponse:
    return SessionSharesResponse(job_id=job_id, shared_with=unshare_session(context, caller, job_id, user))


class NotebooksResponse(BaseModel):
    items: list[str]


@router.get("/sessions/{job_id}/notebooks", summary="List the notebooks in the working folder of your session")
def list_session_notebooks(job_id: IdPath, caller: CallerDep, context: ContextDep) -> NotebooksResponse:
    return NotebooksResponse(items=list_notebooks(context, caller, job_id))


def _view(request: Request, context: Context, state: SessionState) -> dict[str, object]:
    job = state.job
    view = serialize_job(
        job, context.controller.wait_reason(job), serialize_forecast(context.forecaster.forecast_of(job))
    )
    url = addresses_for_caller(request, context).target_url(ProxyTarget(job.id))
    own = {"app": state.app, "is_up": state.is_up, "step": state.step, "url": url}
    own |= {"warning": state.warning or None, "shared_with": list(state.shared_with)}
    return view | own | {"log_tail": state.log_tail or None}
