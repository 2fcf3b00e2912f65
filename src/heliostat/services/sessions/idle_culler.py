"""Idle culler: checks the activity of running sessions, warns before they end, and ends idle ones.

It can run repeatedly; each warning is sent only once.
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
from heliostat.store import job_writes
from heliostat.store import jobs as stored
from heliostat.store import sessions as stored_sessions
from heliostat.store.database import Transaction
from heliostat.store.sample_chunks import TimeGrid, resample_chunks

_MAX_INTERVAL_SECONDS, _MIN_INTERVAL_SECONDS = 30.0, 0.5

_TIMEOUT_SECONDS = 10.0  # includes the time to start a relay
_MAX_RESPONSE_BYTES = 2**18
_USAGE_WINDOW_SECONDS = 120
_BUSY_CORES, _BUSY_PERCENT = 0.5, 3.0
_BUSY_STATES = ("busy", "starting", "restarting", "autorestarting")


def idle_limit(context: Context) -> timedelta | None:
    """None: no limit."""
    text = context.settings.sessions.idle_after
    return None if text == "never" else timedelta(seconds=parse_duration(text))


def poll_interval_seconds(context: Context) -> float:
    """The time between two checks: short enough for several within the lead time of a warning."""
    limit = idle_limit(context)
    if limit is None:
        return _MAX_INTERVAL_SECONDS
    interval = warning_lead_time(limit).total_seconds() / 3
    return max(_MIN_INTERVAL_SECONDS, min(_MAX_INTERVAL_SECONDS, interval))


def check_running_sessions(context: Context) -> None:
    """Check all sessions. Errors of single sessions are raised together at the end."""
    with context.store.read() as conn:
        sessions = stored_sessions.list_running_sessions(conn)
        jobs = stored.get_jobs(conn, [session.job_id for session in sessions])
    failures: list[Exception] = []
    for session in sessions:
        job = jobs.get(session.job_id)
        if job is None or job.started_at is None or job.stop_requested is not None:
            continue
        try:
            _check_session(context, session, job, job.started_at)
        except Exception as error:  # noqa: BLE001 - the other sessions must still be checked
            failures.append(error)
    if failures:
        raise ExceptionGroup("some sessions were not checked", failures)


def time_limit_end(job: Job) -> datetime | None:
    """When the job reaches its time limit; None: not running, or no limit."""
    if job.state is not JobState.RUNNING or job.started_at is None or job.time_limit_seconds is None:
        return None
    return job.started_at + timedelta(seconds=job.time_limit_seconds)


def current_warning(context: Context, session: Session, job: Job) -> str:
    """The warning for the session's owner; empty: none."""
    limit, end = idle_limit(context), time_limit_end(job)
    if job.state is not JobState.RUNNING:
        return ""
    if session.idle_warned_at is not None and limit is not None:
        return _idle_warning(session.idle_warned_at + warning_lead_time(limit))
    if end is not None and session.end_warned_at == end:
        return _end_warning(job, end)
    return ""


def _check_session(context: Context, session: Session, job: Job, started_at: datetime) -> None:
    activity = _observe(context, session, job, started_at)
    after, actions = decide_actions(session, activity, idle_limit(context))

    def change(tx: Transaction) -> None:
        current = stored.get_job(tx.conn, job.id)
        if current is None or current.state is not JobState.RUNNING or current.attempt != job.attempt:
            return
        if current.stop_requested is not None or not stored_sessions.update_session_if_unchanged(
            tx, session, after
        ):
            return
        for action in sorted(actions):
            _apply(context, tx, current, action)

    if actions or needs_write(session, after, idle_limit(context)):
        context.store.write(change)


def _observe(context: Context, session: Session, job: Job, started_at: datetime) -> SessionActivity:
    """Only Jupyter reports its activity. For other servers it is unknown, so they never end as idle."""
    is_polled = session.app in JUPYTER_APPS and _is_poll_needed(context, session)
    reported = poll_jupyter_activity(context, job) if is_polled else None
    now, end = context.now(), time_limit_end(job)
    if reported is None:
        return SessionActivity(now, started_at, end, is_known=False)
    is_busy, used_at = reported
    return SessionActivity(
        now, started_at, end, is_busy=is_busy or is_using_hardware(context, job), last_activity_at=used_at
    )


def _is_poll_needed(context: Context, session: Session) -> bool:
    """Always on the server's own host. On other nodes a poll needs a relay: only if its result could matter."""
    if context.engine.capabilities.runs_on_server_host:
        return True
    limit, active_at = idle_limit(context), session.active_at
    if limit is None or session.keep_idle:
        return False
    if active_at is None or session.idle_warned_at is not None:
        return True
    return context.now() - active_at >= limit - warning_lead_time(limit)


def _apply(context: Context, tx: Transaction, job: Job, action: SessionAction) -> None:
    now, limit, end = context.now(), idle_limit(context), time_limit_end(job)
    if action is SessionAction.WARN_IDLE and limit is not None:
        job_writes.add_job_event(tx, job, ENDS_SOON_EVENT, _idle_warning(now + warning_lead_time(limit)), now)
    elif action is SessionAction.WARN_END and end is not None:
        job_writes.add_job_event(tx, job, ENDS_SOON_EVENT, _end_warning(job, end), now)
    elif action is SessionAction.END_IDLE:
        idle_after = context.settings.sessions.idle_after
        reason = f"ended because it was idle for {idle_after}: no activity of kernels, terminals and GPUs"
        job_writes.update_job(tx, job.id, {"stop_requested": "cancel", "reason": reason})
        job_writes.add_job_event(tx, job, "cancel_requested", reason, now)


def _idle_warning(at: datetime) -> str:
    return f"The session is idle. It ends at {at:%H:%M} UTC unless a cell or terminal is used before."


def _end_warning(job: Job, at: datetime) -> str:
    return f"The session reaches its time limit at {at:%H:%M} UTC. To extend it: helio extend {job.id} 1h."


def poll_jupyter_activity(context: Context, job: Job) -> tuple[bool, datetime | None] | None:
    """Whether a cell runs, and the last activity of a kernel or terminal; None: no valid response."""
    try:
        route = find_route(context, ProxyTarget(job.id))
        kernels, terminals = (_get_list(context, route, path) for path in ("api/kernels", "api/terminals"))
    except (OSError, http.client.HTTPException, HeliostatError, ValueError, RecursionError):
        return None
    is_busy = any(kernel.get("execution_state") in _BUSY_STATES for kernel in kernels)
    return is_busy, max(_times([*kernels, *terminals]), default=None)


def is_using_hardware(context: Context, job: Job) -> bool:
    """Whether the job used its devices, or more than half a core, in the last two minutes.

    Slurm reports cores only. The utilisation of MIG slices is unknown.
    """
    end = int(context.now().timestamp()) + 1
    chunks = context.samples.read(job_subject(job.id), end - _USAGE_WINDOW_SECONDS, end)
    if not chunks:
        return False
    row = resample_chunks(chunks, TimeGrid(end - _USAGE_WINDOW_SECONDS, _USAGE_WINDOW_SECONDS, 1)).mean[0].tolist()
    devices = row[len(USAGE_COLUMNS) :: len(DEVICE_COLUMNS)]
    return _above(row[0], _BUSY_CORES) or any(_above(value, _BUSY_PERCENT) for value in devices)


def _above(value: float, threshold: float) -> bool:
    return not math.isnan(value) and value > threshold


def _get_list(context: Context, route: ProxyRoute, path: str) -> list[dict[str, Any]]:
    target = f"{route.target.path_prefix}{path}?no_track_activity=1"
    headers = {"Authorization": route.authorization_header or ""}
    status, text = http_get(route_endpoint(context, route), target, headers, _TIMEOUT_SECONDS, _MAX_RESPONSE_BYTES)
    data = json.loads(text) if status == 200 else None
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise ValueError("not a list")
    return data


def _times(items: Iterable[dict[str, Any]]) -> list[datetime]:
    times = []
    for item in items:
        with contextlib.suppress(TypeError, ValueError):
            time = datetime.fromisoformat(item["last_activity"]) if "last_activity" in item else None
            times += [time.replace(tzinfo=time.tzinfo or UTC)] if time else []
    return times
