"""Batch notebooks: a job that runs all cells of a notebook."""

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from heliostat.errors import Invalid, NotFound, TooLarge, invalid_field, safe_repr
from heliostat.models import Caller, Job, JobRequest
from heliostat.models.notebooks import MAX_NOTEBOOK_BYTES, NOTEBOOK_PLAN_VARIABLE, NotebookRequest
from heliostat.models.uploads import TreeFile, blob_path, make_tree, user_upload_folder
from heliostat.payloads.archive import NOTEBOOK_RUNNER, program_script
from heliostat.services.accounts.required_accounts import require_unix_user_and_project
from heliostat.services.context import Context
from heliostat.services.jobs.submission import prepare_submission
from heliostat.services.jobs.uploads import UploadReceiver, register_upload
from heliostat.services.sessions.default_jupyter_environment import (
    default_jupyter_spec,
    jupyter_environment_digest,
    jupyter_path,
)
from heliostat.services.sessions.notebook_files import SessionNotebook, read_notebook
from heliostat.store.database import Transaction
from heliostat.store.environments import add_notebook_environment

_FORMAT = 4
_CELLS = ("code", "markdown", "raw")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}", re.ASCII)
_MAX_PARAMETERS = 200
_MAX_PARAMETER_BYTES = 64 * 1024  # of all parameters, as JSON


def run_notebook(
    context: Context,
    caller: Caller,
    notebook_request: NotebookRequest,
    request: JobRequest,
    key: str | None = None,
) -> Job:
    """Submit the notebook's job. With a key, a repeated request returns the same job."""
    _check(notebook_request, request)
    about = repr((notebook_request, replace(request, code=None)))
    with context.notebook_limit.acquire(caller.user.name):
        if notebook_request.session is not None:
            notebook_request, request = _from_session(context, caller, notebook_request, request)
        cells = count_cells(_read_uploaded(context, caller, notebook_request))
    job_request, digest = _with_jupyter(context, caller, _as_job(notebook_request, request, cells))
    change = prepare_submission(context, caller, [job_request], key, about)

    def submit(tx: Transaction) -> Job:
        job = change(tx).jobs[0]
        if digest is not None:
            add_notebook_environment(tx, job.id, digest)
        return job

    return context.store.write(submit)


def _check(notebook_request: NotebookRequest, request: JobRequest) -> None:
    if (notebook_request.upload is None) == (notebook_request.session is None):
        raise invalid_field("notebook", "give either upload or session")
    if not notebook_request.path.endswith(".ipynb"):
        raise invalid_field("notebook", "its name must end in .ipynb")
    spec = request.spec
    if (
        spec.script is not None
        or spec.upload is not None
        or request.array is not None
        or spec.template is not None
    ):
        raise invalid_field("notebook", "script, upload, array and template are not allowed with a notebook")
    if request.placement.tasks > 1:
        raise invalid_field("tasks", "a notebook runs as one task")
    check_notebook_parameters(notebook_request.parameters)


def _from_session(
    context: Context, caller: Caller, notebook_request: NotebookRequest, request: JobRequest
) -> tuple[NotebookRequest, JobRequest]:
    """Upload the current content of the session's notebook. Folder, environment and project of the session are the
    defaults."""
    notebook_file = read_notebook(context, caller, notebook_request.session or 0, notebook_request.path)
    count_cells(notebook_file.data)
    name, session = PurePosixPath(notebook_request.path).name, notebook_file.session
    uploaded_request = replace(
        notebook_request, upload=_upload(context, caller, name, notebook_file), session=None, path=name
    )
    if request.spec.workdir is None and notebook_file.folder is not None:
        request = replace(request, spec=replace(request.spec, workdir=notebook_file.folder))
    if request.environment is None and request.spec.image is None:
        request = replace(request, environment=session.environment)
    return uploaded_request, replace(request, project=request.project or session.project)


def _upload(context: Context, caller: Caller, name: str, notebook_file: SessionNotebook) -> str:
    digest = hashlib.sha256(notebook_file.data).hexdigest()
    tree = make_tree([TreeFile(name, digest, len(notebook_file.data))])
    if register_upload(context, caller, tree).missing:
        receiver = UploadReceiver(context, caller)
        try:
            receiver.feed(f"{digest} {len(notebook_file.data)}\n".encode() + notebook_file.data)
            receiver.finish()
        finally:
            receiver.discard_partial()
        register_upload(context, caller, tree)
    return tree.id


def _read_uploaded(context: Context, caller: Caller, notebook_request: NotebookRequest) -> bytes:
    tree = context.uploads.find_tree(caller.user.name, notebook_request.upload or "")
    entry = next((file for file in tree.files if file.path == notebook_request.path), None) if tree else None
    if entry is None:
        raise Invalid(
            "You have not uploaded this notebook, or it has been deleted.",
            "Upload it again: helio notebook run FILE.",
            fields={"notebook": "does not exist"},
        )
    check_notebook_size(entry.size_bytes)
    with contextlib.suppress(FileNotFoundError):
        path = blob_path(user_upload_folder(str(context.settings.home.uploads), caller.user.name), entry.digest)
        with open(path, "rb") as file:
            return file.read()
    raise NotFound("The uploaded notebook has been deleted.", "Upload it again: helio notebook run FILE.")


def _as_job(notebook_request: NotebookRequest, request: JobRequest, cells: int) -> JobRequest:
    spec = request.spec
    plan = {
        "notebook": notebook_request.path,
        "cells": cells,
        "parameters": dict(notebook_request.parameters),
        "kernel": notebook_request.kernel,
        "workdir": spec.workdir,
    }
    env = {**spec.env, NOTEBOOK_PLAN_VARIABLE: json.dumps(plan)}
    spec = replace(
        spec,
        script=program_script(NOTEBOOK_RUNNER),
        command=(notebook_request.path,),
        env=env,
        upload=notebook_request.upload,
        workdir=None,
    )
    return replace(
        request, spec=spec, name=request.name or os.path.splitext(os.path.basename(notebook_request.path))[0]
    )


def _with_jupyter(context: Context, caller: Caller, request: JobRequest) -> tuple[JobRequest, str | None]:
    """The request with papermill from the JupyterLab of sessions: the configured command, or the default
    environment; and the digest of that environment."""
    sessions, spec = context.settings.sessions, request.spec
    if sessions.jupyter_command is not None:
        return _with_jupyter_command(request, sessions.jupyter_command), None
    if (
        not sessions.jupyter_requirements
        or not context.engine.capabilities.provides_environments
        or spec.image is not None
    ):
        return request, None
    tools = default_jupyter_spec(sessions)
    digest = jupyter_environment_digest(
        context, caller, tools, require_unix_user_and_project(context, caller.user, request.project)
    )
    if digest is None:
        return request, None
    return replace(_with_jupyter_command(request, jupyter_path(context, digest)), tools=tools), digest


def _with_jupyter_command(request: JobRequest, jupyter: str) -> JobRequest:
    """A value that the request sets itself has priority."""
    return replace(request, spec=replace(request.spec, env={"HELIOSTAT_JUPYTER": jupyter, **request.spec.env}))


def count_cells(data: bytes) -> int:
    """The number of cells. Raises Invalid if the data is not a notebook."""
    check_notebook_size(len(data))
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _not_a_notebook("it is not JSON") from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("nbformat"), int):
        raise _not_a_notebook("it has no nbformat")
    if notebook["nbformat"] != _FORMAT:
        raise _not_a_notebook(
            f"its format is {notebook['nbformat']}, not {_FORMAT}; open and save it in JupyterLab"
        )
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not isinstance(notebook.get("metadata"), dict):
        raise _not_a_notebook("it has no cells or no metadata")
    for number, cell in enumerate(cells, 1):
        if not _is_cell(cell):
            raise _not_a_notebook(f"its cell {number} is not valid")
    return len(cells)


def check_notebook_size(size_bytes: int) -> None:
    if size_bytes > MAX_NOTEBOOK_BYTES:
        raise TooLarge(
            f"The notebook has {size_bytes / 2**20:.1f} MiB; the limit is {MAX_NOTEBOOK_BYTES // 2**20} MiB.",
            "Clear its outputs (in JupyterLab: Edit, Clear Outputs of All Cells); keep data in files.",
        )


def check_notebook_parameters(parameters: Mapping[str, Any]) -> None:
    """Names must be valid variables, values must be JSON. Raises Invalid."""
    if len(parameters) > _MAX_PARAMETERS:
        raise invalid_field("parameters", f"at most {_MAX_PARAMETERS} are allowed")
    for name, value in parameters.items():
        if _NAME.fullmatch(name) is None:
            raise invalid_field("parameters", f"{safe_repr(name)} cannot be the name of a variable")
        if isinstance(value, float) and not math.isfinite(value):
            raise invalid_field("parameters", f"{name} is not a finite number; send it as text")
    try:
        text = json.dumps(dict(parameters), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise invalid_field("parameters", "contain a value that is not JSON") from None
    if len(text) > _MAX_PARAMETER_BYTES:
        raise invalid_field("parameters", f"must have at most {_MAX_PARAMETER_BYTES // 1024} KiB as JSON")


def _is_cell(cell: object) -> bool:
    if not isinstance(cell, dict) or cell.get("cell_type") not in _CELLS:
        return False
    source = cell.get("source")
    return isinstance(source, str) or (isinstance(source, list) and all(isinstance(line, str) for line in source))


def _not_a_notebook(problem: str) -> Invalid:
    return Invalid(
        f"The file is not a notebook: {problem}.",
        "Choose a file that JupyterLab has saved, such as analysis.ipynb.",
        fields={"notebook": problem},
    )
