"""Page to run a notebook of a session as a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.errors import HeliostatError, Invalid, invalid_field
from heliostat.models.notebooks import NotebookRequest, parse_parameter_value
from heliostat.services.batch_notebooks import run_notebook
from heliostat.services.sessions.notebook_files import list_notebooks
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest, FormDep, SubmittedForm
from heliostat.web.view_models import JOB_ID_PATH

router = APIRouter()
_FIELDS = ("notebook", "parameters", "gpus", "time_limit", "cpus", "memory", "name")
_MAX_LINES = 500


@dataclass(frozen=True, slots=True)
class NotebooksView:
    session_id: int
    notebook_options: tuple[tuple[str, str], ...]  # value and label
    field_texts: Mapping[str, str] = field(default_factory=dict)
    field_errors: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@router.get("/sessions/" + JOB_ID_PATH + "/notebooks")
def show_notebook_form(request: AuthenticatedDep, job_id: int) -> Response:
    return _form(request, job_id, {"gpus": "1", "time_limit": "4h"})


@router.post("/sessions/" + JOB_ID_PATH + "/notebooks")
def submit_notebook_form(request: AuthenticatedDep, form: FormDep, job_id: int) -> Response:
    texts = {name: form.get(name) for name in _FIELDS}
    try:
        notebook_request = NotebookRequest(
            texts["notebook"], session=job_id, parameters=parse_parameters(texts["parameters"])
        )
        job_request = request.http.app.state.read_job(_body(form), for_forecast=True)
        job = run_notebook(request.context, request.caller, notebook_request, job_request)
    except Invalid as error:
        return _form(request, job_id, texts, error)
    return redirect(request, f"/jobs/{job.id}", "Notebook submitted. Its results will appear here.")


def parse_parameters(text: str) -> dict[str, Any]:
    """Lines of `name = value`. Raises Invalid."""
    found: dict[str, Any] = {}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > _MAX_LINES:
        raise invalid_field("parameters", f"must have at most {_MAX_LINES} lines")
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals:
            raise invalid_field("parameters", "write one parameter per line: lr = 0.1")
        found[name.strip()] = parse_parameter_value(value.strip())
    return found


def _form(
    request: AuthenticatedRequest, job_id: int, texts: Mapping[str, str], error: HeliostatError | None = None
) -> Response:
    paths = list_notebooks(request.context, request.caller, job_id)
    problem = f"{error.message} {error.hint or ''}" if error else ""
    problems = error.fields if isinstance(error, Invalid) else {}
    view = NotebooksView(job_id, tuple((path, path) for path in paths), texts, problems, problem)
    breadcrumbs = (("Sessions", "/sessions"), (f"Session {job_id}", f"/sessions/{job_id}"))
    status = error.status if error else 200
    return render_page(
        request, PageSpec("session_notebooks.html", "Run a notebook", breadcrumbs=breadcrumbs, status=status), view
    )


def _body(form: SubmittedForm) -> dict[str, object]:
    """Body for the API: numbers parsed, empty fields omitted."""
    body: dict[str, object] = {}
    for name in ("gpus", "time_limit", "cpus", "memory", "name"):
        if text := form.get(name):
            body[name] = parse_parameter_value(text) if name in ("gpus", "cpus") else text
    return body
