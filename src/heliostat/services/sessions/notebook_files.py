"""Notebook files in the working folder of a running session: listed and read inside the session, as its owner.

The server itself opens no files there: links and permissions are resolved for the session's owner, on the node
and in the container where the session runs.
"""

import inspect
import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heliostat.errors import Conflict, Forbidden, NotFound, safe_repr
from heliostat.models import Caller, Job, JobId
from heliostat.models.notebooks import MAX_NOTEBOOK_BYTES
from heliostat.payloads import session_notebooks
from heliostat.services.context import Context, require_program_engine
from heliostat.services.jobs.exec import ExecCommand, exec_in_job
from heliostat.services.permissions import require_inspectable_job
from heliostat.store import sessions as stored_sessions

_TIMEOUT_SECONDS = 60.0
_MAX_LIST_BYTES = 2**20
_PIECE_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class SessionNotebook:
    data: bytes
    session: Job
    folder: str | None  # where its kernel runs; None: inside a container


def list_notebooks(context: Context, caller: Caller, session_id: JobId) -> list[str]:
    """Paths below its working folder: at most a few hundred, without hidden folders."""
    session = _own_session(context, caller, session_id)
    with context.notebook_limit.acquire(caller.user.name):
        output = _run_reader(context, caller, session, ["list"], _MAX_LIST_BYTES)
    try:
        paths = json.loads(output)
    except ValueError as error:
        raise _no_response_error(session_id) from error
    return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []


def read_notebook(context: Context, caller: Caller, session_id: JobId, path: str) -> SessionNotebook:
    """The current content; it may exceed the limit by a byte. Raises NotFound unless the path is a regular file
    below the session's working folder."""
    session = _own_session(context, caller, session_id)
    if path.startswith("/") or "\0" in path or len(path) > 3000 or ".." in path.split("/"):
        raise _notebook_not_found(path, session_id)
    data = _run_reader(context, caller, session, ["read", path], MAX_NOTEBOOK_BYTES + 3)
    if data[:1] != b"+":  # the reader writes it before the content of a readable file
        raise _notebook_not_found(path, session_id)
    return SessionNotebook(data[1:], session, _folder(context, session, path))


def _own_session(context: Context, caller: Caller, session_id: JobId) -> Job:
    job = require_inspectable_job(context, caller, session_id)
    if job.user != caller.user.name:
        raise Forbidden(f"Session {session_id} belongs to {job.user}.", f"Ask {job.user} to run the notebook.")
    with context.store.read() as conn:
        if stored_sessions.find_session(conn, session_id) is None:
            raise NotFound(f"Job {session_id} is not a session.", "`helio session list` lists yours.")
    return job


def _folder(context: Context, session: Job, path: str) -> str | None:
    """The folder of the notebook, as in JupyterLab; None: inside a container."""
    root = session.spec.workdir
    if session.spec.uses_container:
        return None
    root = root or require_program_engine(context).work_folder(session.id)
    return os.path.join(root, os.path.dirname(path)).rstrip("/") or "/"


def _run_reader(context: Context, caller: Caller, session: Job, arguments: Sequence[str], max_bytes: int) -> bytes:
    """The output of the notebook reader inside the session. Raises Conflict above the limits of bytes and time."""
    command = exec_in_job(
        context, caller, session.id, ["python3", "-c", inspect.getsource(session_notebooks), *arguments]
    )
    try:
        data, is_complete = _run(command, max_bytes)
    except (OSError, subprocess.SubprocessError) as error:
        raise _no_response_error(session.id) from error
    finally:
        command.close()
    if not is_complete:
        raise _no_response_error(session.id)
    return data


def _run(command: ExecCommand, max_bytes: int) -> tuple[bytes, bool]:
    options: dict[str, Any] = {
        "env": dict(command.environment),
        "cwd": "/",
        "pass_fds": command.inherited_descriptors,
    }
    with subprocess.Popen(
        command.argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
        **options,
    ) as process:
        try:
            data, has_ended = _read(process, max_bytes)
            return data, has_ended and process.wait(_TIMEOUT_SECONDS) == 0
        finally:
            _kill(process)


def _read(process: "subprocess.Popen[bytes]", max_bytes: int) -> tuple[bytes, bool]:
    """The output, and whether it is complete: within the limits of bytes and time."""
    assert process.stdout is not None  # noqa: S101 - Popen got PIPE
    deadline, data, ready = time.monotonic() + _TIMEOUT_SECONDS, bytearray(), select.poll()
    ready.register(process.stdout, select.POLLIN)  # select() fails for descriptors above 1023
    while len(data) < max_bytes:
        remaining_seconds = deadline - time.monotonic()
        if remaining_seconds <= 0 or not ready.poll(remaining_seconds * 1000):
            return bytes(data), False
        piece = os.read(process.stdout.fileno(), min(_PIECE_BYTES, max_bytes - len(data)))
        if not piece:
            return bytes(data), True
        data += piece
    return bytes(data), False


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        try:
            os.killpg(process.pid, 9)
        except ProcessLookupError:
            return


def _notebook_not_found(path: str, session_id: JobId) -> NotFound:
    return NotFound(
        f"There is no notebook {safe_repr(path)} that you can read in session {session_id}.",
        "Give its path relative to the folder where the session was started, as JupyterLab shows it.",
    )


def _no_response_error(session_id: JobId) -> Conflict:
    return Conflict(
        f"The notebooks of session {session_id} cannot be read.",
        "Try again, or run the file itself.",
    )
