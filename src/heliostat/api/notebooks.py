"""Batch notebooks over HTTP."""

from typing import Annotated, Any

from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints
from starlette.responses import JSONResponse, Response

from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.api.request_schemas import Argument, JobBody, SingleLine
from heliostat.api.serialization import serialize_forecast, serialize_job
from heliostat.models.notebooks import NotebookRequest
from heliostat.services.batch_notebooks import run_notebook
from heliostat.services.sessions.notebook_files import list_notebooks

router = APIRouter(tags=["notebooks"])
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
NotebookPath = Annotated[str, StringConstraints(min_length=1, max_length=3000, strict=True)]
Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$", strict=True)]


class NotebookLocation(BaseModel):
    """Where a notebook is: in an upload of yours, or in the working folder of a running session of yours."""

    model_config = ConfigDict(extra="forbid")

    path: NotebookPath
    upload: Digest | None = None
    session: Annotated[int, Field(strict=True, ge=1, le=2**53)] | None = None


class NotebookBody(JobBody):
    """A notebook to run, and what a job may ask for. `workdir` is where its kernel runs."""

    notebook: NotebookLocation
    parameters: dict[Annotated[str, StringConstraints(max_length=100)], JsonValue] = Field(
        default={}, description="Values of its variables, set after the cell with the tag `parameters`."
    )
    kernel: SingleLine | None = Field(
        default=None, description="A kernel by its name; left out, as the notebook says."
    )
    command: Annotated[list[Argument], Field(max_length=1)] = Field(
        default=["notebook"], description="Leave it out."
    )

    def to_notebook_request(self) -> NotebookRequest:
        place = self.notebook
        parameters: dict[str, Any] = dict(self.parameters)
        return NotebookRequest(place.path, place.upload, place.session, parameters, self.kernel)


class NotebooksResponse(BaseModel):
    items: list[str]


@router.post("/notebooks", status_code=201, summary="Run a notebook as a job")
def submit_notebook(
    body: NotebookBody, caller: CallerDep, context: ContextDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """The job. What it makes is in its folder `results`: the executed notebook, and a page of it."""
    job = run_notebook(context, caller, body.to_notebook_request(), body.to_request(), idempotency_key)
    view = serialize_job(
        job, context.controller.wait_reason(job), serialize_forecast(context.forecaster.forecast_of(job))
    )
    return JSONResponse(view, 201)


@router.get("/sessions/{job_id}/notebooks", summary="The notebooks in the working folder of a session of yours")
def list_session_notebooks(job_id: IdPath, caller: CallerDep, context: ContextDep) -> NotebooksResponse:
    return NotebooksResponse(items=list_notebooks(context, caller, job_id))
