"""A notebook of a running session as a job: which one, with which parameters, with what."""

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
_MOST_LINES = 500


@dataclass(frozen=True, slots=True)
class NotebooksView:
    session_id: int
    notebook_options: tuple[tuple[str, str], ...]  # the notebooks that are there
    field_texts: Mapping[str, str] = field(default_factory=dict)
    field_errors: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@router.get("/sessions/" + JOB_ID_PATH + "/notebooks")
def show_notebook_form(visit: AuthenticatedDep, job_id: int) -> Response:
    return _form(visit, job_id, {"gpus": "1", "time_limit": "4h"})


@router.post("/sessions/" + JOB_ID_PATH + "/notebooks")
def submit_notebook_form(visit: AuthenticatedDep, form: FormDep, job_id: int) -> Response:
    texts = {name: form.get(name) for name in _FIELDS}
    try:
        wish = NotebookRequest(texts["notebook"], session=job_id, parameters=parse_parameters(texts["parameters"]))
        request = visit.request.app.state.read_job(_body(form), to_ask=True)
        job = run_notebook(visit.context, visit.caller, wish, request)
    except Invalid as error:
        return _form(visit, job_id, texts, error)
    return redirect(visit, f"/jobs/{job.id}", "The notebook is in the queue. What it makes shows here as results.")


def parse_parameters(text: str) -> dict[str, Any]:
    """Lines of `name = value`. Raises Invalid."""
    found: dict[str, Any] = {}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > _MOST_LINES:
        raise invalid_field("parameters", f"there are more than {_MOST_LINES} lines")
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals:
            raise invalid_field("parameters", "write one on each line: lr = 0.1")
        found[name.strip()] = parse_parameter_value(value.strip())
    return found


def _form(
    visit: AuthenticatedRequest, job_id: int, texts: Mapping[str, str], error: HeliostatError | None = None
) -> Response:
    paths = list_notebooks(visit.context, visit.caller, job_id)
    problem = f"{error.message} {error.hint or ''}" if error else ""
    problems = error.fields if isinstance(error, Invalid) else {}
    view = NotebooksView(job_id, tuple((path, path) for path in paths), texts, problems, problem)
    crumbs = (("Sessions", "/sessions"), (f"Session {job_id}", f"/sessions/{job_id}"))
    status = error.status if error else 200
    return render_page(
        visit, PageSpec("session_notebooks.html", "Run a notebook", breadcrumbs=crumbs, status=status), view
    )


def _body(form: SubmittedForm) -> dict[str, object]:
    """As the API takes it; numbers as numbers, what is empty left out."""
    body: dict[str, object] = {}
    for name in ("gpus", "time_limit", "cpus", "memory", "name"):
        if text := form.get(name):
            body[name] = parse_parameter_value(text) if name in ("gpus", "cpus") else text
    return body
