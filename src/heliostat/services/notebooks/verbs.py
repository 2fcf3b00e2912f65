"""Batch notebooks: a notebook that runs from its first cell to its last as a job of the queue."""

import contextlib
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path, PurePosixPath

from heliostat.errors import Invalid, NotFound
from heliostat.models import Caller, Job, JobRequest
from heliostat.models.notebooks import PLAN, NotebookWish
from heliostat.models.uploads import TreeFile, blob_path, folder_of, make_tree
from heliostat.services.accounts.acting import invalid
from heliostat.services.context import Context
from heliostat.services.jobs.submission import prepare_submission, project_and_unix_user
from heliostat.services.jobs.uploads import Receiver, offer_upload
from heliostat.services.notebooks.contents import check_parameters, check_size, count_cells
from heliostat.services.sessions.notebooks import FoundNotebook, read_notebook
from heliostat.services.sessions.software import digest_of_tools, jupyter_in, jupyter_software, one_script
from heliostat.store.database import Transaction
from heliostat.store.notebooks import put_notebook

_HERE = Path(__file__).parent
_PARTS = (_HERE.parent / "sessions" / "kernels.py", _HERE / "cells.py", _HERE / "runner.py")


def run_notebook(
    context: Context, caller: Caller, wish: NotebookWish, request: JobRequest, key: str | None = None
) -> Job:
    """Put it into the queue. With a key, the same request again gives the same job again."""
    _check(wish, request)
    about = repr((wish, replace(request, code=None)))
    with context.notebooks.of(caller.user.name):
        if wish.session is not None:
            wish, request = _from_session(context, caller, wish, request)
        cells = count_cells(_uploaded(context, caller, wish))
    asked, digest = _with_tools(context, caller, _as_job(wish, request, cells))
    change = prepare_submission(context, caller, [asked], key, about)

    def submit(tx: Transaction) -> Job:
        job = change(tx).jobs[0]
        if digest is not None:
            put_notebook(tx, job.id, digest)
        return job

    return context.store.write(submit)


def _check(wish: NotebookWish, request: JobRequest) -> None:
    if (wish.upload is None) == (wish.session is None):
        raise invalid("notebook", "say where it is: in an upload, or in a session")
    if not wish.path.endswith(".ipynb"):
        raise invalid("notebook", "its name must end in .ipynb")
    spec = request.spec
    if (
        spec.script is not None
        or spec.upload is not None
        or request.array is not None
        or spec.template is not None
    ):
        raise invalid("notebook", "a notebook is all its job runs: no script, upload, array or template beside it")
    if request.placement.tasks > 1:
        raise invalid("tasks", "a notebook is one task")
    check_parameters(wish.parameters)


def _from_session(
    context: Context, caller: Caller, wish: NotebookWish, request: JobRequest
) -> tuple[NotebookWish, JobRequest]:
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


def _keep(context: Context, caller: Caller, name: str, found: FoundNotebook) -> str:
    digest = hashlib.sha256(found.data).hexdigest()
    tree = make_tree([TreeFile(name, digest, len(found.data))])
    if offer_upload(context, caller, tree).missing:
        receiver = Receiver(context, caller)
        try:
            receiver.feed(f"{digest} {len(found.data)}\n".encode() + found.data)
            receiver.end()
        finally:
            receiver.drop()
        offer_upload(context, caller, tree)
    return tree.id


def _uploaded(context: Context, caller: Caller, wish: NotebookWish) -> bytes:
    tree = context.uploads.tree(caller.user.name, wish.upload or "")
    entry = next((file for file in tree.files if file.path == wish.path), None) if tree else None
    if entry is None:
        raise Invalid(
            "You have uploaded no such notebook, or it was removed since.",
            "Upload it again: helio notebook run FILE.",
            fields={"notebook": "not there"},
        )
    check_size(entry.size_bytes)
    with contextlib.suppress(FileNotFoundError):
        path = blob_path(folder_of(str(context.settings.home.uploads), caller.user.name), entry.digest)
        with open(path, "rb") as file:
            return file.read()
    raise NotFound("What was uploaded is not there any more.", "Upload it again: helio notebook run FILE.")


def _as_job(wish: NotebookWish, request: JobRequest, cells: int) -> JobRequest:
    spec = request.spec
    plan = {
        "notebook": wish.path,
        "cells": cells,
        "parameters": dict(wish.parameters),
        "kernel": wish.kernel,
        "workdir": spec.workdir,
    }
    env = {**spec.env, PLAN: json.dumps(plan)}
    spec = replace(
        spec, script=one_script(_PARTS), command=(wish.path,), env=env, upload=wish.upload, workdir=None
    )
    return replace(request, spec=spec, name=request.name or os.path.splitext(os.path.basename(wish.path))[0])


def _with_tools(context: Context, caller: Caller, request: JobRequest) -> tuple[JobRequest, str | None]:
    """Papermill, from what sessions have JupyterLab from: where the admins say, or built once for all; and the
    digest of that."""
    sessions, spec = context.settings.sessions, request.spec
    if sessions.jupyter_command is not None:
        return _started_by(request, sessions.jupyter_command), None
    if not sessions.jupyter_requirements or not context.engine.capabilities.equips or spec.image is not None:
        return request, None
    tools = jupyter_software(sessions)
    digest = digest_of_tools(context, caller, tools, project_and_unix_user(context, caller.user, request.project))
    if digest is None:
        return request, None
    return replace(_started_by(request, jupyter_in(context, digest)), tools=tools), digest


def _started_by(request: JobRequest, jupyter: str) -> JobRequest:
    """Unless it names another one itself."""
    return replace(request, spec=replace(request.spec, env={"HELIOSTAT_JUPYTER": jupyter, **request.spec.env}))
