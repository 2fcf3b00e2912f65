"""Endpoints of a paused server."""

from datetime import datetime

from pydantic import BaseModel, Field

from heliostat.api.request_bodies import BodyRouter, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.services import pause as services

router = BodyRouter(tags=["cluster"])


class ResumeBody(RequestBody):
    unknown_jobs: services.UnknownJobs | None = Field(
        default=None, description="What becomes of running jobs that the database does not know."
    )


class UnknownJobResponse(BaseModel):
    """A running job that the database does not know."""

    job_id: int
    attempt_id: str
    unix_user: str
    started_at: datetime | None
    place: str


class PauseResponse(BaseModel):
    paused: bool
    paused_at: str | None
    reason: str | None
    after_restore: bool
    unknown_jobs: list[UnknownJobResponse]


@router.get("/pause")
def show_pause(caller: CallerDep, context: ContextDep) -> PauseResponse:
    """Show whether and why the server is paused, and running jobs that it does not know. Admins only."""
    view = services.show_pause(context, caller)
    unknown = [
        UnknownJobResponse(
            job_id=int(found.id.partition(".")[0]),
            attempt_id=found.id,
            unix_user=found.unix_user,
            started_at=found.started_at,
            place=found.place,
        )
        for found in view.unknown_jobs
    ]
    pause = view.pause
    return PauseResponse(
        paused=pause is not None,
        paused_at=pause.at if pause else None,
        reason=pause.reason if pause else None,
        after_restore=pause is not None and pause.after_restore,
        unknown_jobs=unknown,
    )


@router.post("/resume", status_code=204)
def resume(body: ResumeBody, caller: CallerDep, context: ContextDep) -> None:
    """End the pause: start jobs again. 409 if jobs run that the database does not know, unless `unknown_jobs` says
    what becomes of them. Admins only."""
    services.resume(context, caller, body.unknown_jobs)
