"""Endpoint that runs a notebook as a batch job."""

from typing import Annotated, Any

from fastapi import Header
from pydantic import AfterValidator, BaseModel, Field, JsonValue, StringConstraints
from starlette.responses import JSONResponse, Response

from heliostat.api.field_types import SingleLine
from heliostat.api.job_field_types import Argument
from heliostat.api.job_schemas import JobBody
from heliostat.api.request_bodies import BodyRouter, Entries, check_depth
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.serialization import serialize_forecast, serialize_job
from heliostat.models.notebooks import NotebookRequest
from heliostat.services.batch_notebooks import run_notebook

router = BodyRouter(tags=["notebooks"])
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
NotebookPath = Annotated[str, StringConstraints(min_length=1, max_length=3000, strict=True)]
Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$", strict=True)]


ParameterName = Annotated[str, StringConstraints(max_length=100)]


class NotebookLocation(BaseModel):
    """Where the notebook is: in one of your uploads, or in the working folder of one of your running sessions."""

    path: NotebookPath
    upload: Digest | None = None
    session: Annotated[int, Field(strict=True, ge=1, le=2**53)] | None = None


class NotebookBody(JobBody):
    """A notebook to run, and the fields of its job. The kernel runs in `workdir`."""

    notebook: NotebookLocation
    parameters: Annotated[dict[ParameterName, JsonValue], Entries(1000), AfterValidator(check_depth)] = Field(
        default={}, description="Values of its variables, set after the cell with the tag `parameters`."
    )
    kernel: SingleLine | None = Field(
        default=None, description="Name of the kernel. Default: the kernel named in the notebook."
    )
    command: Annotated[list[Argument], Field(max_length=1)] = Field(
        default=["notebook"], description="Not used; omit it."
    )

    def to_notebook_request(self) -> NotebookRequest:
        location = self.notebook
        parameters: dict[str, Any] = dict(self.parameters)
        return NotebookRequest(location.path, location.upload, location.session, parameters, self.kernel)


@router.post("/notebooks", status_code=201, summary="Run a notebook as a job")
def submit_notebook(
    body: NotebookBody, caller: CallerDep, context: ContextDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Returns the job. Its folder `results` will contain the executed notebook and an HTML page of it."""
    job = run_notebook(context, caller, body.to_notebook_request(), body.to_request(), idempotency_key)
    view = serialize_job(
        job, context.controller.wait_reason(job), serialize_forecast(context.forecaster.forecast_of(job))
    )
    return JSONResponse(view, 201)
