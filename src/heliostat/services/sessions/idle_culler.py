"""Looks at every running session: is it used? Warns before it ends, and ends what is forgotten.

May be repeated; each warning comes once only.
"""

import contextlib
import http.client
import json
import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from heliostat.errors import HeliostatError
from heliostat.models import Job, JobState
from heliostat.models.notifications import ENDS_SOON_EVENT
from heliostat.models.quantities import parse_duration
from heliostat.models.samples import DEVICE_COLUMNS, USAGE_COLUMNS, job_subject
from heliostat.models.sessions import JUPYTER_APPS, ProxyTarget, Session
from heliostat.services.context import Context
from heliostat.services.job_http import http_get
from heliostat.services.proxy_routes import ProxyRoute, find_route, route_endpoint
from heliostat.services.sessions.idle_policy import (
    SessionAction,
    SessionActivity,
    decide_actions,
    needs_write,
    warning_lead_time,
)
from heliostat.store import jobs as stored
from heliostat.store import sessions as kept
from heliostat.store import transitions
from heliostat.store.database import Transaction
from heliostat.store.sample_chunks import TimeGrid, resample_chunks

_LONGEST_PAUSE_SECONDS, _SHORTEST_PAUSE_SECONDS = 30.0, 0.5

_PATIENCE_SECONDS = 10.0  # a relay may have to be started first
_MOST_BYTES = 2**18
_LOOK_BACK_SECONDS = 120
_BUSY_CORES, _BUSY_PERCENT = 0.5, 3.0
_AT_WORK = ("busy", "starting", "restarting", "autorestarting")


def idle_limit(context: Context) -> timedelta | None:
    """None: sessions may be idle for ever."""
    text = context.settings.sessions.idle_after
    return None if text == "never" else timedelta(seconds=parse_duration(text))


def poll_interval_seconds(context: Context) -> float:
    """Between two looks: several within the time of a warning."""
    whole = idle_limit(context)
    if whole is None:
        return _LONGEST_PAUSE_SECONDS
    wanted = warning_lead_time(whole).total_seconds() / 3
    return max(_SHORTEST_PAUSE_SECONDS, min(_LONGEST_PAUSE_SECONDS, wanted))


def check_running_sessions(context: Context) -> None:
    """All of them, whatever goes wrong with one: that is raised afterwards."""
    with context.store.read() as conn:
        sessions = kept.list_running_sessions(conn)
        jobs = stored.get_jobs(conn, [session.job_id for session in sessions])
    failures: list[Exception] = []
    for session in sessions:
        job = jobs.get(session.job_id)
        if job is None or job.started_at is None or job.stop_requested is not None:
            continue
        try:
            _watch(context, session, job, job.started_at)
        except Exception as error:  # noqa: BLE001 - the others have done nothing
            failures.append(error)
    if failures:
        raise ExceptionGroup("some sessions were not watched", failures)


def time_limit_end(job: Job) -> datetime | None:
    """By its time limit."""
    if job.state is not JobState.RUNNING or job.started_at is None or job.time_limit_seconds is None:
        return None
    return job.started_at + timedelta(seconds=job.time_limit_seconds)


def current_warning(context: Context, session: Session, job: Job) -> str:
    """What its owner should know now; empty: nothing."""
    whole, end = idle_limit(context), time_limit_end(job)
    if job.state is not JobState.RUNNING:
        return ""
    if session.idle_warned_at is not None and whole is not None:
        return _idle_words(session.idle_warned_at + warning_lead_time(whole))
    if end is not None and session.end_warned_at == end:
        return _end_words(job, end)
    return ""


def _watch(context: Context, session: Session, job: Job, started_at: datetime) -> None:
    look = _look(context, session, job, started_at)
    after, acts = decide_actions(session, look, idle_limit(context))

    def change(tx: Transaction) -> None:
        found = stored.get_job(tx.conn, job.id)
        if found is None or found.state is not JobState.RUNNING or found.attempt != job.attempt:
            return
        if found.stop_requested is not None or not kept.update_session_if_unchanged(tx, session, after):
            return
        for act in sorted(acts):
            _carry_out(context, tx, found, act)

    if acts or needs_write(session, after, idle_limit(context)):
        context.store.write(change)


def _look(context: Context, session: Session, job: Job, started_at: datetime) -> SessionActivity:
    """Only Jupyter says whether it is used: of other servers nothing is known, so they are left alone."""
    is_asked = session.app in JUPYTER_APPS and _is_worth_asking(context, session)
    told = poll_jupyter_activity(context, job) if is_asked else None
    now, end = context.now(), time_limit_end(job)
    if told is None:
        return SessionActivity(now, started_at, end, is_known=False)
    is_busy, used_at = told
    return SessionActivity(
        now, started_at, end, is_busy=is_busy or is_using_hardware(context, job), last_activity_at=used_at
    )


def _is_worth_asking(context: Context, session: Session) -> bool:
    """Always on this machine. On another it takes a relay: only if the answer may warn it, end it or spare it."""
    if context.engine.capabilities.runs_on_server_host:
        return True
    whole, active_at = idle_limit(context), session.active_at
    if whole is None or session.keep_idle:
        return False
    if active_at is None or session.idle_warned_at is not None:
        return True
    return context.now() - active_at >= whole - warning_lead_time(whole)


def _carry_out(context: Context, tx: Transaction, job: Job, act: SessionAction) -> None:
    now, whole, end = context.now(), idle_limit(context), time_limit_end(job)
    if act is SessionAction.WARN_IDLE and whole is not None:
        transitions.add_job_event(tx, job, ENDS_SOON_EVENT, _idle_words(now + warning_lead_time(whole)), now)
    elif act is SessionAction.WARN_END and end is not None:
        transitions.add_job_event(tx, job, ENDS_SOON_EVENT, _end_words(job, end), now)
    elif act is SessionAction.END_IDLE:
        told = context.settings.sessions.idle_after
        reason = f"ended because nobody used it for {told}: its kernels, terminals and GPUs were idle"
        transitions.update_job(tx, job.id, {"stop_requested": "cancel", "reason": reason})
        transitions.add_job_event(tx, job, "cancel_requested", reason, now)


def _idle_words(at: datetime) -> str:
    return f"Nobody uses it: it ends at {at:%H:%M} UTC unless a cell or terminal is used before."


def _end_words(job: Job, at: datetime) -> str:
    return f"Its time is over at {at:%H:%M} UTC; more time: helio extend {job.id} 1h."


def poll_jupyter_activity(context: Context, job: Job) -> tuple[bool, datetime | None] | None:
    """Whether a cell runs, and when a kernel or terminal last did something; None: it did not say."""
    try:
        way = find_route(context, ProxyTarget(job.id))
        kernels, terminals = (_ask(context, way, path) for path in ("api/kernels", "api/terminals"))
    except (OSError, http.client.HTTPException, HeliostatError, ValueError, RecursionError):
        return None
    is_busy = any(one.get("execution_state") in _AT_WORK for one in kernels)
    return is_busy, max(_times([*kernels, *terminals]), default=None)


def is_using_hardware(context: Context, job: Job) -> bool:
    """Whether its devices, or more than half a core, were at work in the last two minutes.

    Slurm tells of cores only.
    """
    end = int(context.now().timestamp()) + 1
    chunks = context.samples.read(job_subject(job.id), end - _LOOK_BACK_SECONDS, end)
    if not chunks:
        return False
    row = resample_chunks(chunks, TimeGrid(end - _LOOK_BACK_SECONDS, _LOOK_BACK_SECONDS, 1)).mean[0].tolist()
    devices = row[len(USAGE_COLUMNS) :: len(DEVICE_COLUMNS)]
    return _above(row[0], _BUSY_CORES) or any(_above(value, _BUSY_PERCENT) for value in devices)


def _above(value: float, least: float) -> bool:
    return not math.isnan(value) and value > least


def _ask(context: Context, way: ProxyRoute, path: str) -> list[dict[str, Any]]:
    target = f"{way.target.path_prefix}{path}?no_track_activity=1"
    shown = {"Authorization": way.authorization_header or ""}
    status, text = http_get(route_endpoint(context, way), target, shown, _PATIENCE_SECONDS, _MOST_BYTES)
    data = json.loads(text) if status == 200 else None
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise ValueError("no list")
    return data


def _times(found: Iterable[dict[str, Any]]) -> list[datetime]:
    times = []
    for one in found:
        with contextlib.suppress(TypeError, ValueError):
            time = datetime.fromisoformat(one["last_activity"]) if "last_activity" in one else None
            times += [time.replace(tzinfo=time.tzinfo or UTC)] if time else []
    return times
