"""Sessions: start, list, show and share. A session is a web server in a job, reached through the proxy. Users
that it is shared with act as its owner there."""

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from heliostat.errors import Conflict, Forbidden, HeliostatError, Invalid, NotFound, invalid_field
from heliostat.models import Caller, Job, JobRequest, JobState, User
from heliostat.models.sessions import SESSION_APPS, ProxyTarget, Session, SessionRequest
from heliostat.payloads.archive import SESSION_LAUNCHER, program_script
from heliostat.services.accounts.required_accounts import require_unix_user_and_project, require_user
from heliostat.services.context import Context
from heliostat.services.jobs.submission import SubmissionResult, prepare_submission
from heliostat.services.jobs.wait_status import find_wait_status
from heliostat.services.logs.reader import LogRange, read_log
from heliostat.services.permissions import write_as_caller
from heliostat.services.proxy_routes import find_route, require_target_access, route_endpoint
from heliostat.services.sessions.default_jupyter_environment import (
    jupyter_environment_digest,
    jupyter_path,
    jupyter_spec_for,
)
from heliostat.services.sessions.idle_culler import current_warning
from heliostat.store import accounts
from heliostat.store import jobs as stored
from heliostat.store import sessions as stored_sessions
from heliostat.store.database import Transaction

TOKEN_VARIABLE = "HELIOSTAT_SESSION_TOKEN"  # noqa: S105 - the name of the variable
_MAX_LISTED = 200
_LATE_SECONDS = 20.0
_TAIL_BYTES, _TAIL_LINES = 4000, 20

MAX_GUESTS = 50


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session and the state of its server."""

    job: Job
    app: str
    is_up: bool  # its server responds
    step: str  # its current state, in a sentence
    shared_with: tuple[str, ...] = ()  # only for its owner
    warning: str = ""  # that it ends soon
    log_tail: str = ""  # if it failed, or its server does not respond


def start_session(
    context: Context, caller: Caller, session_request: SessionRequest, request: JobRequest, key: str | None = None
) -> SessionState:
    """Submit the session's job. With a key, a repeated request returns the same session."""
    secret = _secret(context, caller.user.name, key)
    app = session_request.app
    job_request, digest = _with_jupyter(context, caller, app, _as_job(context, app, request, secret))
    change = _prepare(context, caller, job_request, key)

    def start(tx: Transaction) -> Job:
        job = change(tx).jobs[0]
        if stored_sessions.find_session(tx.conn, job.id) is None:
            stored_sessions.add_session(tx, Session(job.id, app, secret, digest, session_request.keep_idle))
        return job

    job = context.store.write(start)
    return SessionState(job, app, False, _step(context, job, is_up=False))


def list_sessions(context: Context, caller: Caller) -> list[SessionState]:
    """The caller's own, and those shared with the caller; newest first."""
    with context.store.read() as conn:
        sessions = stored_sessions.list_sessions_of_user(conn, caller.user.name, _MAX_LISTED)
        if context.public_urls.has_host_per_target:
            sessions += stored_sessions.list_sessions_shared_with(conn, caller.user.name, _MAX_LISTED)
        sessions.sort(key=lambda session: -session.job_id)
        jobs = stored.get_jobs(conn, [session.job_id for session in sessions])
    return [_state(context, jobs[session.job_id], session) for session in sessions if session.job_id in jobs]


def show_session(context: Context, caller: Caller, job_id: int) -> SessionState:
    job = require_target_access(context, caller.user, ProxyTarget(job_id))
    with context.store.read() as conn:
        session, guests = (
            stored_sessions.find_session(conn, job_id),
            tuple(stored_sessions.list_session_guests(conn, job_id)),
        )
    if session is None:
        raise NotFound(f"Job {job_id} is not a session.", "`helio session list` lists yours.")
    state = _state(context, job, session)
    if job.user != caller.user.name:
        return state
    state = replace(state, shared_with=guests)
    failed = job.state in (JobState.FAILED, JobState.TIMED_OUT)
    return replace(state, log_tail=_last_lines(context, job)) if failed or _is_late(context, state) else state


def _prepare(
    context: Context, caller: Caller, request: JobRequest, key: str | None
) -> Callable[[Transaction], SubmissionResult]:
    """Falls back to the class `normal` if the engine does not support `interactive`, the default of sessions."""
    try:
        return prepare_submission(context, caller, [request], key)
    except Invalid as error:
        if request.priority_class != "interactive" or "priority_class" not in error.fields:
            raise
    return prepare_submission(context, caller, [replace(request, priority_class="normal")], key)


def _secret(context: Context, user: str, key: str | None) -> str:
    """With a key, derived from it and from a key of the server, so that a repeated request is identical."""
    if key is None:
        return secrets.token_urlsafe(32)
    message = f"{len(user)} {user} {key}".encode()
    return hmac.new(_own_key(context.settings.home.session_key), message, hashlib.sha256).hexdigest()


def _own_key(path: Path) -> bytes:
    with contextlib.suppress(FileExistsError):
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
            os.link(draft, path)  # atomic: the first key stays
        finally:
            draft.unlink()
    return path.read_bytes()


def _as_job(context: Context, app: str, request: JobRequest, secret: str) -> JobRequest:
    if app not in SESSION_APPS:
        raise invalid_field("app", f"must be one of {', '.join(SESSION_APPS)}")
    if app == "custom" and not request.spec.command:
        raise invalid_field("command", "must not be empty; the port is in $PORT")
    if request.spec.script is not None or request.array is not None or request.placement.tasks > 1:
        raise invalid_field(
            "app", "a session has one task and runs a command: script, array and tasks are not allowed"
        )
    sessions = context.settings.sessions
    command = request.spec.command if app == "custom" else ()
    env = {**request.spec.env, TOKEN_VARIABLE: secret}
    if sessions.jupyter_command:
        env.setdefault("HELIOSTAT_JUPYTER", sessions.jupyter_command)
    spec = replace(request.spec, script=program_script(SESSION_LAUNCHER), command=(app, *command), env=env)
    limit = request.time_limit_seconds or int(sessions.default_hours * 3600)
    return replace(request, kind="session", spec=spec, name=request.name or app, time_limit_seconds=limit)


def _with_jupyter(
    context: Context, caller: Caller, app: str, request: JobRequest
) -> tuple[JobRequest, str | None]:
    """The request with the default JupyterLab environment if it has none, and the digest of that environment."""
    jupyter = jupyter_spec_for(context, app, request)
    if jupyter is None:
        return request, None
    digest = jupyter_environment_digest(
        context, caller, jupyter, require_unix_user_and_project(context, caller.user, request.project)
    )
    if digest is None:
        return request, None
    env = {"HELIOSTAT_JUPYTER": jupyter_path(context, digest), **request.spec.env}
    return replace(request, tools=jupyter, spec=replace(request.spec, env=env)), digest


def _state(context: Context, job: Job, session: Session) -> SessionState:
    is_up = job.state is JobState.RUNNING and _is_up(context, job)
    step, warning = _step(context, job, is_up=is_up), current_warning(context, session, job)
    return SessionState(job, session.app, is_up, step, warning=warning)


def _step(context: Context, job: Job, *, is_up: bool) -> str:
    """The state of the session, in a sentence."""
    match job.state:
        case JobState.RUNNING:
            return "The server is up." if is_up else "The server is starting."
        case JobState.STARTING:
            return f"The session is starting on {job.node}."
        case JobState.HELD:
            return "The session is held."
        case JobState.PENDING:
            text = find_wait_status(context, job).reason
        case _:
            text = job.reason or ""
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else "The session has ended."


def _is_late(context: Context, state: SessionState) -> bool:
    """The job runs, but its server does not respond: its log may show why."""
    job = state.job
    if state.is_up or job.state is not JobState.RUNNING or job.started_at is None:
        return False
    return (context.now() - job.started_at).total_seconds() > _LATE_SECONDS


def _is_up(context: Context, job: Job) -> bool:
    try:
        route_endpoint(context, find_route(context, ProxyTarget(job.id))).check(again=False)
    except HeliostatError:
        return False
    return True


def _last_lines(context: Context, job: Job) -> str:
    with contextlib.suppress(HeliostatError):
        text = read_log(context, job, LogRange("stderr", -_TAIL_BYTES)).data.decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-_TAIL_LINES:])
    return ""


def share_session(context: Context, caller: Caller, job_id: int, guest: str) -> list[str]:
    """Share with one more user; returns all users it is shared with. Only if each session has its own host name,
    and so its own origin: otherwise a page in the session could access other pages that the guest has open."""
    if not context.public_urls.has_host_per_target:
        raise Conflict(
            "Sessions can be shared only if each has its own host name.",
            'An admin can configure that in [server]: proxy_url = "https://*.sessions.example.org".',
            code="no_own_hosts",
        )

    def change(tx: Transaction, actor: User) -> list[str]:
        job = _own_session(tx, actor, job_id)
        if job.is_terminal:
            raise Conflict(f"Session {job_id} has ended.", "Start another: helio notebook.")
        user = require_user(tx, guest)
        if user.name == job.user:
            raise invalid_field("user", "is the owner of the session")
        if not user.active:
            raise invalid_field("user", f"the account {user.name} is deactivated")
        guests = {*stored_sessions.list_session_guests(tx.conn, job_id), user.name}
        if len(guests) > MAX_GUESTS:
            raise Conflict(
                f"Session {job_id} is already shared with {MAX_GUESTS} users.",
                "Stop sharing it with some of them.",
            )
        stored_sessions.add_session_guest(tx, job_id, user.name, context.now())
        accounts.add_audit_entry(tx, caller, "session.share", f"job {job_id}", {"user": user.name}, context.now())
        return sorted(guests)

    return write_as_caller(context, caller, change)


def unshare_session(context: Context, caller: Caller, job_id: int, guest: str) -> list[str]:
    """Stop sharing with this user, who loses access within seconds. Does nothing if it was not shared."""

    def change(tx: Transaction, actor: User) -> list[str]:
        _own_session(tx, actor, job_id)
        guests = stored_sessions.list_session_guests(tx.conn, job_id)
        if guest in guests:
            stored_sessions.remove_session_guest(tx, job_id, guest)
            accounts.add_audit_entry(
                tx, caller, "session.unshare", f"job {job_id}", {"user": guest}, context.now()
            )
        return [name for name in guests if name != guest]

    return write_as_caller(context, caller, change)


def _own_session(tx: Transaction, actor: User, job_id: int) -> Job:
    """Only for its owner, not for managers and admins."""
    job = stored.get_job(tx.conn, job_id)
    if job is None or stored_sessions.find_session(tx.conn, job_id) is None:
        raise NotFound(f"There is no session {job_id}.", "`helio session list` lists yours.")
    if job.user != actor.name:
        raise Forbidden(f"Session {job_id} belongs to {job.user}.", f"Only {job.user} can share it.")
    return job
