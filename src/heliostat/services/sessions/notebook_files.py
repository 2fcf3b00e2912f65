"""The notebooks in the working folder of a running session: looked for and read inside it, as its owner.

The server opens nothing there itself: what a link leads to, and whether it may be read, is the kernel's to say of
that person, on the node and in the container where the session runs.
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
from heliostat.payloads import notebook_reader
from heliostat.services.context import Context, require_program_engine
from heliostat.services.jobs.exec import ExecCommand, exec_in_job
from heliostat.services.permissions import require_inspectable_job
from heliostat.store import sessions as kept

_PATIENCE_SECONDS = 60.0
_MOST_LIST_BYTES = 2**20
_PIECE_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class SessionNotebook:
    data: bytes
    session: Job
    folder: str | None  # where its kernel runs there; None: that is nothing to others


def list_notebooks(context: Context, caller: Caller, session_id: JobId) -> list[str]:
    """Paths below its working folder: a few hundred at most, none of hidden folders."""
    session = _own_session(context, caller, session_id)
    with context.notebook_limit.acquire(caller.user.name):
        told = _answer(context, caller, session, ["list"], _MOST_LIST_BYTES)
    try:
        paths = json.loads(told)
    except ValueError as error:
        raise _unanswered(session_id) from error
    return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []


def read_notebook(context: Context, caller: Caller, session_id: JobId, path: str) -> SessionNotebook:
    """What it holds now, which may be a byte too large. Raises NotFound for what is no plain file below the
    session's working folder."""
    session = _own_session(context, caller, session_id)
    if path.startswith("/") or "\0" in path or len(path) > 3000 or ".." in path.split("/"):
        raise _no_notebook(path, session_id)
    data = _answer(context, caller, session, ["read", path], MAX_NOTEBOOK_BYTES + 3)
    if data[:1] != b"+":  # said of what could be read
        raise _no_notebook(path, session_id)
    return SessionNotebook(data[1:], session, _folder(context, session, path))


def _own_session(context: Context, caller: Caller, session_id: JobId) -> Job:
    job = require_inspectable_job(context, caller, session_id)
    if job.user != caller.user.name:
        raise Forbidden(f"Session {session_id} is {job.user}'s.", f"Ask {job.user} to run it.")
    with context.store.read() as conn:
        if kept.find_session(conn, session_id) is None:
            raise NotFound(f"Job {session_id} is no session.", "`helio session list` lists yours.")
    return job


def _folder(context: Context, session: Job, path: str) -> str | None:
    """Beside the notebook, as JupyterLab has it."""
    root = session.spec.workdir
    if session.spec.uses_container:
        return None
    root = root or require_program_engine(context).work_folder(session.id)
    return os.path.join(root, os.path.dirname(path)).rstrip("/") or "/"


def _answer(context: Context, caller: Caller, session: Job, words: Sequence[str], most: int) -> bytes:
    """What the reader says inside the session, up to so many bytes, in a minute at most."""
    inside = exec_in_job(
        context, caller, session.id, ["python3", "-c", inspect.getsource(notebook_reader), *words]
    )
    try:
        data, is_whole = _talk(inside, most)
    except (OSError, subprocess.SubprocessError) as error:
        raise _unanswered(session.id) from error
    finally:
        inside.close()
    if not is_whole:
        raise _unanswered(session.id)
    return data


def _talk(inside: ExecCommand, most: int) -> tuple[bytes, bool]:
    options: dict[str, Any] = {
        "env": dict(inside.environment),
        "cwd": "/",
        "pass_fds": inside.inherited_descriptors,
    }
    with subprocess.Popen(
        inside.argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
        **options,
    ) as process:
        try:
            data, has_ended = _read(process, most)
            return data, has_ended and process.wait(_PATIENCE_SECONDS) == 0
        finally:
            _end(process)


def _read(process: "subprocess.Popen[bytes]", most: int) -> tuple[bytes, bool]:
    """Up to the end of what it says; False: it said too much, or took too long."""
    assert process.stdout is not None  # noqa: S101 - a pipe, as asked for
    deadline, data, ready = time.monotonic() + _PATIENCE_SECONDS, bytearray(), select.poll()
    ready.register(process.stdout, select.POLLIN)  # select() knows no descriptor above 1023
    while len(data) < most:
        left = deadline - time.monotonic()
        if left <= 0 or not ready.poll(left * 1000):
            return bytes(data), False
        piece = os.read(process.stdout.fileno(), min(_PIECE_BYTES, most - len(data)))
        if not piece:
            return bytes(data), True
        data += piece
    return bytes(data), False


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        try:
            os.killpg(process.pid, 9)
        except ProcessLookupError:
            return


def _no_notebook(path: str, session_id: JobId) -> NotFound:
    return NotFound(
        f"There is no notebook {safe_repr(path)} that you can read in session {session_id}.",
        "Name it as JupyterLab shows it, from the folder it was started in.",
    )


def _unanswered(session_id: JobId) -> Conflict:
    return Conflict(
        f"Session {session_id} did not say what notebooks it has.",
        "Try again, or run the file itself.",
    )
