"""Endpoints that explain the queue: why, when, and by what right."""

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from heliostat.api.deps import CallerDep, ContextDep, IdPath
from heliostat.api.schemas import WhenBody
from heliostat.api.views import account_view, answer_view, explanation_view
from heliostat.services.accounts.shares import counted_by, share_tree
from heliostat.services.jobs.why import explain_job, foresee_request

router = APIRouter(tags=["queue"])


@router.get("/jobs/{job_id}/why")
def why(job_id: IdPath, caller: CallerDep, context: ContextDep, what_if: bool = False) -> Response:
    """Why a job waits: its place, who is ahead, what blocks it, when it will start, what would start earlier."""
    return JSONResponse(explanation_view(explain_job(context, caller, job_id, what_if=what_if)))


@router.post("/when")
def when(body: WhenBody, caller: CallerDep, context: ContextDep) -> Response:
    """When such a job would start, were it submitted now, and what would start earlier. Stores nothing."""
    answer = foresee_request(context, caller, body.to_request())
    return JSONResponse(answer_view(answer, context.forecaster.accuracy()))


@router.get("/share")
def share(caller: CallerDep, context: ContextDep) -> Response:
    """The fair-share tree: what is whose by right, what was used, what that costs. People: of your projects."""
    tree = [account_view(one) for one in share_tree(context, caller)]
    return JSONResponse({"items": tree, "next_cursor": None, "counted_by": counted_by(context)})
