"""Batch notebooks: a notebook that runs from its first cell to its last as a job of the queue."""

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
from heliostat.services.accounts.lookup import require_unix_user_and_project
from heliostat.services.context import Context
from heliostat.services.jobs.submission import prepare_submission
from heliostat.services.jobs.uploads import UploadReceiver, register_upload
from heliostat.services.sessions.jupyter_environment import (
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
_MOST_PARAMETERS = 200
_MOST_PARAMETER_BYTES = 64 * 1024  # all of them, written down


def run_notebook(
    context: Context, caller: Caller, wish: NotebookRequest, request: JobRequest, key: str | None = None
) -> Job:
    """Put it into the queue. With a key, the same request again gives the same job again."""
    _check(wish, request)
    about = repr((wish, replace(request, code=None)))
    with context.notebook_limit.acquire(caller.user.name):
        if wish.session is not None:
            wish, request = _from_session(context, caller, wish, request)
        cells = count_cells(_uploaded(context, caller, wish))
    asked, digest = _with_tools(context, caller, _as_job(wish, request, cells))
    change = prepare_submission(context, caller, [asked], key, about)

    def submit(tx: Transaction) -> Job:
        job = change(tx).jobs[0]
        if digest is not None:
            add_notebook_environment(tx, job.id, digest)
        return job

    return context.store.write(submit)


def _check(wish: NotebookRequest, request: JobRequest) -> None:
    if (wish.upload is None) == (wish.session is None):
        raise invalid_field("notebook", "say where it is: in an upload, or in a session")
    if not wish.path.endswith(".ipynb"):
        raise invalid_field("notebook", "its name must end in .ipynb")
    spec = request.spec
    if (
        spec.script is not None
        or spec.upload is not None
        or request.array is not None
        or spec.template is not None
    ):
        raise invalid_field(
            "notebook", "a notebook is all its job runs: no script, upload, array or template beside it"
        )
    if request.placement.tasks > 1:
        raise invalid_field("tasks", "a notebook is one task")
    check_notebook_parameters(wish.parameters)


def _from_session(
    context: Context, caller: Caller, wish: NotebookRequest, request: JobRequest
) -> tuple[NotebookRequest, JobRequest]:
    """What is in the session now, kept as an upload of its owner; it runs as it would there, unless asked
    otherwise."""
    found = read_notebook(context, caller, wish.session or 0, wish.path)
    count_cells(found.data)
    name, session = PurePosixPath(wish.path).name, found.session
    kept = replace(wish, upload=_keep(context, caller, name, found), session=None, path=name)
    if request.spec.workdir is None and found.folder is not None:
        request = replace(request, spec=replace(request.spec, workdir=found.folder))
    if request.environment is None and request.spec.image is None:
        request = replace(request, environment=session.environment)
    return kept, replace(request, project=request.project or session.project)


def _keep(context: Context, caller: Caller, name: str, found: SessionNotebook) -> str:
    digest = hashlib.sha256(found.data).hexdigest()
    tree = make_tree([TreeFile(name, digest, len(found.data))])
    if register_upload(context, caller, tree).missing:
        receiver = UploadReceiver(context, caller)
        try:
            receiver.feed(f"{digest} {len(found.data)}\n".encode() + found.data)
            receiver.finish()
        finally:
            receiver.discard_partial()
        register_upload(context, caller, tree)
    return tree.id


def _uploaded(context: Context, caller: Caller, wish: NotebookRequest) -> bytes:
    tree = context.uploads.find_tree(caller.user.name, wish.upload or "")
    entry = next((file for file in tree.files if file.path == wish.path), None) if tree else None
    if entry is None:
        raise Invalid(
            "You have uploaded no such notebook, or it was removed since.",
            "Upload it again: helio notebook run FILE.",
            fields={"notebook": "not there"},
        )
    check_notebook_size(entry.size_bytes)
    with contextlib.suppress(FileNotFoundError):
        path = blob_path(user_upload_folder(str(context.settings.home.uploads), caller.user.name), entry.digest)
        with open(path, "rb") as file:
            return file.read()
    raise NotFound("What was uploaded is not there any more.", "Upload it again: helio notebook run FILE.")


def _as_job(wish: NotebookRequest, request: JobRequest, cells: int) -> JobRequest:
    spec = request.spec
    plan = {
        "notebook": wish.path,
        "cells": cells,
        "parameters": dict(wish.parameters),
        "kernel": wish.kernel,
        "workdir": spec.workdir,
    }
    env = {**spec.env, NOTEBOOK_PLAN_VARIABLE: json.dumps(plan)}
    spec = replace(
        spec,
        script=program_script(NOTEBOOK_RUNNER),
        command=(wish.path,),
        env=env,
        upload=wish.upload,
        workdir=None,
    )
    return replace(request, spec=spec, name=request.name or os.path.splitext(os.path.basename(wish.path))[0])


def _with_tools(context: Context, caller: Caller, request: JobRequest) -> tuple[JobRequest, str | None]:
    """Papermill, from what sessions have JupyterLab from: where the admins say, or built once for all; and the
    digest of that."""
    sessions, spec = context.settings.sessions, request.spec
    if sessions.jupyter_command is not None:
        return _started_by(request, sessions.jupyter_command), None
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
    return replace(_started_by(request, jupyter_path(context, digest)), tools=tools), digest


def _started_by(request: JobRequest, jupyter: str) -> JobRequest:
    """Unless it names another one itself."""
    return replace(request, spec=replace(request.spec, env={"HELIOSTAT_JUPYTER": jupyter, **request.spec.env}))


def count_cells(data: bytes) -> int:
    """How many cells a notebook has. Raises Invalid for what is none."""
    check_notebook_size(len(data))
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _no_notebook("it is not JSON") from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("nbformat"), int):
        raise _no_notebook("it has no nbformat")
    if notebook["nbformat"] != _FORMAT:
        raise _no_notebook(f"its format is {notebook['nbformat']}, not {_FORMAT}; open and save it in JupyterLab")
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not isinstance(notebook.get("metadata"), dict):
        raise _no_notebook("it has no cells or no metadata")
    for number, cell in enumerate(cells, 1):
        if not _is_cell(cell):
            raise _no_notebook(f"its cell {number} is none")
    return len(cells)


def check_notebook_size(size_bytes: int) -> None:
    if size_bytes > MAX_NOTEBOOK_BYTES:
        raise TooLarge(
            f"A notebook may have {MAX_NOTEBOOK_BYTES // 2**20} MiB, this has {size_bytes / 2**20:.1f} MiB.",
            "Clear its outputs (in JupyterLab: Edit, Clear Outputs of All Cells); keep data in files.",
        )


def check_notebook_parameters(parameters: Mapping[str, Any]) -> None:
    """Names that can be variables, values that JSON can say. Raises Invalid."""
    if len(parameters) > _MOST_PARAMETERS:
        raise invalid_field("parameters", f"there are more than {_MOST_PARAMETERS}")
    for name, value in parameters.items():
        if _NAME.fullmatch(name) is None:
            raise invalid_field("parameters", f"{safe_repr(name)} cannot be the name of a variable")
        if isinstance(value, float) and not math.isfinite(value):
            raise invalid_field("parameters", f"{name} is not a finite number; send it as text")
    try:
        written = json.dumps(dict(parameters), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise invalid_field("parameters", "there is a value that JSON cannot say") from None
    if len(written) > _MOST_PARAMETER_BYTES:
        raise invalid_field("parameters", f"written down, they have more than {_MOST_PARAMETER_BYTES // 1024} KiB")


def _is_cell(cell: object) -> bool:
    if not isinstance(cell, dict) or cell.get("cell_type") not in _CELLS:
        return False
    source = cell.get("source")
    return isinstance(source, str) or (isinstance(source, list) and all(isinstance(line, str) for line in source))


def _no_notebook(why: str) -> Invalid:
    return Invalid(
        f"This is no notebook: {why}.",
        "Name a file that JupyterLab has written, such as analysis.ipynb.",
        fields={"notebook": why},
    )
