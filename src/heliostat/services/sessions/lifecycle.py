"""Sessions: a web server of one person in a job of the queue, reached through the proxy. Whoever they let in acts
there as their owner."""

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from heliostat.errors import Conflict, Forbidden, HeliostatError, Invalid, NotFound, invalid_field
from heliostat.models import ACTIVE_STATES, Caller, DependencyCondition, Job, JobRequest, JobState, User
from heliostat.models.sessions import SESSION_APPS, ProxyTarget, Session, SessionRequest
from heliostat.payloads.archive import SESSION_LAUNCHER, program_script
from heliostat.services.accounts.lookup import require_unix_user_and_project, require_user
from heliostat.services.context import Context
from heliostat.services.jobs.submission import SubmissionResult, prepare_submission
from heliostat.services.logs.reader import LogRange, read_log
from heliostat.services.permissions import write_as_caller
from heliostat.services.proxy_routes import find_route, require_target_access, route_endpoint
from heliostat.services.sessions.idle_culler import current_warning
from heliostat.services.sessions.jupyter_environment import (
    jupyter_environment_digest,
    jupyter_path,
    jupyter_spec_for,
)
from heliostat.store import accounts
from heliostat.store import jobs as stored
from heliostat.store import sessions as kept
from heliostat.store.database import Transaction

TOKEN_VARIABLE = "HELIOSTAT_SESSION_TOKEN"  # noqa: S105 - the name of the variable
_MOST_LISTED = 200
_LATE_SECONDS = 20.0
_TAIL_BYTES, _TAIL_LINES = 4000, 20

MAX_GUESTS = 50


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session as its owner sees it."""

    job: Job
    app: str
    is_up: bool  # its server answers
    step: str  # what it does now, in a sentence
    shared_with: tuple[str, ...] = ()  # for its owner
    warning: str = ""  # what its owner should know now
    log_tail: str = ""  # of one that failed, or whose server does not come up


def start_session(
    context: Context, caller: Caller, wish: SessionRequest, request: JobRequest, key: str | None = None
) -> SessionState:
    """Put it into the queue. With a key, the same request again gives the same session again."""
    secret = _secret(context, caller.user.name, key)
    app = wish.app
    asked, digest = _with_tools(context, caller, app, _as_job(context, app, request, secret))
    change = _prepared(context, caller, asked, key)

    def start(tx: Transaction) -> Job:
        job = change(tx).jobs[0]
        if kept.find_session(tx.conn, job.id) is None:
            kept.add_session(tx, Session(job.id, app, secret, digest, wish.keep_idle))
        return job

    job = context.store.write(start)
    return SessionState(job, app, False, _step(context, job, is_up=False))


def list_sessions(context: Context, caller: Caller) -> list[SessionState]:
    """Those of the caller, and those others share with them; newest first."""
    with context.store.read() as conn:
        found = kept.list_sessions_of_user(conn, caller.user.name, _MOST_LISTED)
        if context.public_urls.has_host_per_target:
            found += kept.list_sessions_shared_with(conn, caller.user.name, _MOST_LISTED)
        found.sort(key=lambda session: -session.job_id)
        jobs = stored.get_jobs(conn, [session.job_id for session in found])
    return [_state(context, jobs[session.job_id], session) for session in found if session.job_id in jobs]


def show_session(context: Context, caller: Caller, job_id: int) -> SessionState:
    job = require_target_access(context, caller.user, ProxyTarget(job_id))
    with context.store.read() as conn:
        session, guests = kept.find_session(conn, job_id), tuple(kept.list_session_guests(conn, job_id))
    if session is None:
        raise NotFound(f"Job {job_id} is no session.", "`helio session list` lists yours.")
    state = _state(context, job, session)
    if job.user != caller.user.name:
        return state
    state = replace(state, shared_with=guests)
    failed = job.state in (JobState.FAILED, JobState.TIMED_OUT)
    return replace(state, log_tail=_last_lines(context, job)) if failed or _is_late(context, state) else state


def _prepared(
    context: Context, caller: Caller, request: JobRequest, key: str | None
) -> Callable[[Transaction], SubmissionResult]:
    """What sessions get unless they ask for another class is not known to every Slurm."""
    try:
        return prepare_submission(context, caller, [request], key)
    except Invalid as error:
        if request.priority_class != "interactive" or "priority_class" not in error.fields:
            raise
    return prepare_submission(context, caller, [replace(request, priority_class="normal")], key)


def _secret(context: Context, user: str, key: str | None) -> str:
    """A repeated request must be the same request, so its secret follows from its key, and from one of ours."""
    if key is None:
        return secrets.token_urlsafe(32)
    told = f"{len(user)} {user} {key}".encode()
    return hmac.new(_own_key(context.settings.home.session_key), told, hashlib.sha256).hexdigest()


def _own_key(path: Path) -> bytes:
    with contextlib.suppress(FileExistsError):
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
            os.link(draft, path)  # whole, or not at all; the first one counts
        finally:
            draft.unlink()
    return path.read_bytes()


def _as_job(context: Context, app: str, request: JobRequest, secret: str) -> JobRequest:
    if app not in SESSION_APPS:
        raise invalid_field("app", f"must be one of {', '.join(SESSION_APPS)}")
    if app == "custom" and not request.spec.command:
        raise invalid_field("command", "say what to run; it finds its port in $PORT")
    if request.spec.script is not None or request.array is not None or request.placement.tasks > 1:
        raise invalid_field("app", "a session is one task that runs a command: no script, array or tasks")
    sessions = context.settings.sessions
    words = request.spec.command if app == "custom" else ()
    env = {**request.spec.env, TOKEN_VARIABLE: secret}
    if sessions.jupyter_command:
        env.setdefault("HELIOSTAT_JUPYTER", sessions.jupyter_command)
    spec = replace(request.spec, script=program_script(SESSION_LAUNCHER), command=(app, *words), env=env)
    limit = request.time_limit_seconds or int(sessions.default_hours * 3600)
    return replace(request, kind="session", spec=spec, name=request.name or app, time_limit_seconds=limit)


def _with_tools(context: Context, caller: Caller, app: str, request: JobRequest) -> tuple[JobRequest, str | None]:
    """What it needs to be started is built first, if it brings nothing; and the digest of that."""
    tools = jupyter_spec_for(context, app, request)
    if tools is None:
        return request, None
    digest = jupyter_environment_digest(
        context, caller, tools, require_unix_user_and_project(context, caller.user, request.project)
    )
    if digest is None:
        return request, None
    env = {"HELIOSTAT_JUPYTER": jupyter_path(context, digest), **request.spec.env}
    return replace(request, tools=tools, spec=replace(request.spec, env=env)), digest


def _state(context: Context, job: Job, session: Session) -> SessionState:
    is_up = job.state is JobState.RUNNING and _is_up(context, job)
    step, warning = _step(context, job, is_up=is_up), current_warning(context, session, job)
    return SessionState(job, session.app, is_up, step, warning=warning)


def _step(context: Context, job: Job, *, is_up: bool) -> str:
    """How far it has come, in a sentence."""
    match job.state:
        case JobState.RUNNING:
            return "Its server is up." if is_up else "Its server is starting."
        case JobState.STARTING:
            return f"It is being started on {job.node}."
        case JobState.HELD:
            return "It is held."
        case JobState.PENDING | JobState.PREEMPTED:
            return _build_step(context, job) or "It waits in the queue."
    text = job.reason or ""
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else "It is over."


def _build_step(context: Context, job: Job) -> str:
    """What it waits for before its turn; empty: nothing is left to be built."""
    ids = [one.parent_id for one in job.after if one.condition is DependencyCondition.BUILT]
    if not ids or job.parents_left == 0:
        return ""
    with context.store.read() as conn:
        builds = [build for build in stored.get_jobs(conn, ids).values() if not build.is_terminal]
    if not builds:
        return ""
    if any(build.state in ACTIVE_STATES for build in builds):
        return "Its software is being built, once for everybody; this takes a minute or two."
    return "Its software waits to be built, once for everybody."


def _is_late(context: Context, state: SessionState) -> bool:
    """It runs, and its server does not listen: what it says may tell why."""
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
    """With one more person; everybody it is shared with. Only where each session has a host name, so an origin, of
    its own: otherwise a page inside it could use what the guest has open beside it."""
    if not context.public_urls.has_host_per_target:
        raise Conflict(
            "Sessions can be shared only where each has a host name of its own.",
            'An admin can set that in [server]: proxy_url = "https://*.sessions.example.org".',
            code="no_own_hosts",
        )

    def change(tx: Transaction, actor: User) -> list[str]:
        job = _own_session(tx, actor, job_id)
        if job.is_terminal:
            raise Conflict(f"Session {job_id} is over.", "Start another: helio notebook.")
        user = require_user(tx, guest)
        if user.name == job.user:
            raise invalid_field("user", "it is yours already")
        if not user.active:
            raise invalid_field("user", f"the account {user.name} is deactivated")
        guests = {*kept.list_session_guests(tx.conn, job_id), user.name}
        if len(guests) > MAX_GUESTS:
            raise Conflict(f"It is shared with {MAX_GUESTS} people already.", "Take it back from some.")
        kept.add_session_guest(tx, job_id, user.name, context.now())
        accounts.add_audit_entry(tx, caller, "session.share", f"job {job_id}", {"user": user.name}, context.now())
        return sorted(guests)

    return write_as_caller(context, caller, change)


def unshare_session(context: Context, caller: Caller, job_id: int, guest: str) -> list[str]:
    """Not with this person any more, who is shown out within seconds. Already gone is success."""

    def change(tx: Transaction, actor: User) -> list[str]:
        _own_session(tx, actor, job_id)
        guests = kept.list_session_guests(tx.conn, job_id)
        if guest in guests:
            kept.remove_session_guest(tx, job_id, guest)
            accounts.add_audit_entry(
                tx, caller, "session.unshare", f"job {job_id}", {"user": guest}, context.now()
            )
        return [name for name in guests if name != guest]

    return write_as_caller(context, caller, change)


def _own_session(tx: Transaction, actor: User, job_id: int) -> Job:
    """Not for managers and admins: it is not theirs to give."""
    job = stored.get_job(tx.conn, job_id)
    if job is None or kept.find_session(tx.conn, job_id) is None:
        raise NotFound(f"There is no session {job_id}.", "`helio session list` lists yours.")
    if job.user != actor.name:
        raise Forbidden(f"Session {job_id} is {job.user}'s.", f"Only {job.user} can share it.")
    return job
