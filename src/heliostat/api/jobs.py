"""Endpoints of jobs: submit, list, show, cancel, hold, requeue, wait, and logs."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from heliostat.api.event_feed import EventFeed, FollowerTooSlow
from heliostat.api.job_schemas import BulkSubmitBody, CancelJobsBody, JobBody, KeepGpusBody, WaitForJobsBody
from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import MAX_ID, CallerDep, ContextDep, IdPath
from heliostat.api.schedules import serialize_schedule_origin
from heliostat.api.serialization import (
    Json,
    serialize_dependencies,
    serialize_forecast,
    serialize_idle_notice,
    serialize_job,
    serialize_job_detail,
    serialize_metrics,
    serialize_public_job,
)
from heliostat.api.time_fields import TimeParam
from heliostat.errors import Invalid
from heliostat.models import TERMINAL_STATES, Caller, Job, JobEvent, JobId, JobRequest, JobState
from heliostat.services.context import Context
from heliostat.services.efficiency import total_attempt_usage
from heliostat.services.fair_use.answers import idle_notice, keep_gpus
from heliostat.services.jobs import control as services
from heliostat.services.jobs.job_history import load_dependency_view
from heliostat.services.jobs.metrics import get_metrics_of
from heliostat.services.jobs.submission import preview_jobs, submit_jobs
from heliostat.services.jobs.usage_hints import find_usage_hints
from heliostat.services.logs.reader import LogRange, read_log, read_stream_order
from heliostat.services.permissions import (
    may_inspect,
    may_see_env_values,
    require_inspectable,
    require_inspectable_job,
)
from heliostat.services.sessions.lifecycle import TOKEN_VARIABLE
from heliostat.store import jobs as stored
from heliostat.store.schedules import find_schedule_origin
from heliostat.store.usage import list_attempt_usage

router = BodyRouter(tags=["jobs"])
_MAX_PREVIEWED = 100
HIDDEN_VALUE = "(hidden)"
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
_PREVIEW: dict[int | str, dict[str, Any]] = {200: {"description": "With `dry_run`: nothing was submitted."}}
IdQueryParam = Annotated[int | None, Query(ge=1, le=MAX_ID)]
DryRun = Annotated[bool, Query(description="Only make all checks; return the jobs as they would be submitted.")]
FilterText = Annotated[
    str | None, Query(max_length=128, pattern=r"^[^\x00]*$")
]  # SQLite would end the text at NUL


@router.post("/jobs", status_code=201, responses=_PREVIEW)
def submit_job(
    body: JobBody,
    caller: CallerDep,
    context: ContextDep,
    idempotency_key: IdempotencyKey = None,
    dry_run: DryRun = False,
) -> Response:
    """Submit one job, or with `array` one job per index. Responds when it is stored on disk."""
    if dry_run:
        return _preview(context, caller, [body.to_request()])
    submitted = submit_jobs(context, caller, [body.to_request()], idempotency_key, body.fingerprint())
    if submitted.array_ids:
        ids = list(submitted.job_ids)
        return JSONResponse({"array_id": submitted.array_ids[0], "count": len(ids), "job_ids": ids}, 201)
    hints = _hints(context, caller, submitted.jobs)
    return JSONResponse(_view(context, caller, submitted.jobs[0]) | {"hints": hints}, 201)


@router.post("/jobs/bulk", status_code=201, responses=_PREVIEW)
def submit_bulk(
    body: BulkSubmitBody,
    caller: CallerDep,
    context: ContextDep,
    idempotency_key: IdempotencyKey = None,
    dry_run: DryRun = False,
) -> Response:
    """Submit up to 10,000 jobs in one transaction: all, or none if one is invalid."""
    if dry_run:
        return _preview(context, caller, body.to_requests())
    submitted = submit_jobs(context, caller, body.to_requests(), idempotency_key, body.fingerprint())
    ids, hints = list(submitted.job_ids), _hints(context, caller, submitted.jobs)
    array_ids = list(submitted.array_ids)
    return JSONResponse({"count": len(ids), "job_ids": ids, "array_ids": array_ids, "hints": hints}, 201)


@router.get("/jobs")
def list_jobs(
    caller: CallerDep,
    context: ContextDep,
    state: Annotated[list[JobState] | None, Query()] = None,
    user: FilterText = None,
    project: FilterText = None,
    name: FilterText = None,
    node: FilterText = None,
    array_id: IdQueryParam = None,
    submitted_after: TimeParam = None,
    submitted_before: TimeParam = None,
    unfinished: bool = False,
    newest_replicas: bool = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    cursor: Annotated[str | None, Query(max_length=32)] = None,
) -> Response:
    """List jobs, newest first. Jobs of other users have only the fields that explain the queue."""
    owner = caller.user.name if user == "me" else user
    if name is not None and not caller.user.may_manage(project or ""):
        owner = _only_own(caller, owner)
    job_filter = stored.JobFilter(
        states=_states(state, unfinished),
        user=owner,
        project=project,
        name=name,
        array_id=array_id,
        node=node,
        submitted_after=submitted_after,
        submitted_before=submitted_before,
        newest_replicas=newest_replicas,
    )
    with context.store.read() as conn:
        jobs = stored.list_jobs(conn, job_filter, limit + 1, _before(cursor))
    next_cursor = str(jobs[limit - 1].id) if len(jobs) > limit else None
    items = [_view(context, caller, job) for job in jobs[:limit]]
    return JSONResponse({"items": items, "next_cursor": next_cursor})


@router.post("/jobs/cancel")
def cancel_jobs(body: CancelJobsBody, caller: CallerDep, context: ContextDep) -> Response:
    """Cancel several jobs, or all jobs of an array."""
    cancelled = services.cancel_jobs(context, caller, body.job_ids, body.array_id, force=body.force)
    return JSONResponse({"count": len(cancelled), "job_ids": cancelled})


@router.post("/jobs/wait")
async def wait_for_jobs(
    body: WaitForJobsBody, request: Request, caller: CallerDep, context: ContextDep
) -> Response:
    """Respond when all these jobs have ended, or after the timeout."""
    feed: EventFeed = request.app.state.feed
    deadline = time.monotonic() + body.timeout_seconds
    waiter = JobWaiter(context, caller, body.job_ids, lambda job: _view(context, caller, job))
    with context.stream_limit.acquire(caller.user.name), feed.follow() as follower:
        await run_in_threadpool(waiter.refresh)
        while waiter.unfinished and (seconds := deadline - time.monotonic()) > 0:
            try:
                waiter.apply_events(await follower.wait_for_events(seconds))
            except FollowerTooSlow:
                await run_in_threadpool(waiter.refresh)
    return await run_in_threadpool(waiter.build_response)


@router.get("/jobs/{job_id}")
def show_job(job_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """Show a job with all its attempts."""
    job = require_inspectable_job(context, caller, job_id)
    with context.store.read() as conn:
        attempts, dependencies = stored.list_attempts(conn, job_id), load_dependency_view(conn, job)
        accounting_usage = total_attempt_usage(list_attempt_usage(conn, job_id))
        origin = find_schedule_origin(conn, job_id)
    forecast = serialize_forecast(context.forecaster.forecast_of(job))
    view = serialize_job_detail(
        job, context.controller.wait_reason(job), forecast, attempts
    ) | serialize_dependencies(dependencies)
    view["metrics"] = serialize_metrics(get_metrics_of(context, job))
    view["schedule"] = serialize_schedule_origin(origin)
    view["part"] = job.part and {"of": job.part.of, "number": job.part.number, "key": job.part.key}
    view["idle_gpus"] = _idle_gpus(context, job)
    view["accounting_usage"] = None if accounting_usage is None else asdict(accounting_usage)
    for env in (view["spec"]["env"], view["request"].get("env") or {}):
        env.pop(TOKEN_VARIABLE, None)
    if not may_see_env_values(caller.user, job):
        view["spec"]["env"] = dict.fromkeys(job.spec.env, HIDDEN_VALUE)
        view["request"].pop("env", None)
    return JSONResponse(view)


@router.post("/jobs/{job_id}/cancel")
def cancel_job(job_id: IdPath, caller: CallerDep, context: ContextDep, force: bool = False) -> Response:
    """Cancel a job. A waiting job ends immediately. A running job gets TERM and, after its grace period, KILL;
    with `force` KILL immediately. Succeeds if the job has ended already: `had_ended`."""
    had_ended = require_inspectable_job(context, caller, job_id).is_terminal
    job = services.cancel_job(context, caller, job_id, force=force)
    return JSONResponse(_view(context, caller, job) | {"had_ended": had_ended})


@router.post("/jobs/{job_id}/hold")
def hold_job(job_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """Prevent a waiting job from starting."""
    return JSONResponse(_view(context, caller, services.hold_job(context, caller, job_id)))


@router.post("/jobs/{job_id}/release")
def release_job(job_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """Allow a held job to start."""
    return JSONResponse(_view(context, caller, services.release_job(context, caller, job_id)))


@router.post("/jobs/{job_id}/requeue")
def requeue_job(job_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """Stop the running attempt and queue the job again."""
    return JSONResponse(_view(context, caller, services.requeue_job(context, caller, job_id)))


@router.post("/jobs/{job_id}/checkpoint")
def record_checkpoint(job_id: IdPath, caller: CallerDep, context: ContextDep) -> Response:
    """Record that a running job has saved its work until now."""
    return JSONResponse(_view(context, caller, services.record_checkpoint(context, caller, job_id)))


@router.post("/jobs/{job_id}/keep")
def keep_gpus_of_job(job_id: IdPath, body: KeepGpusBody, caller: CallerDep, context: ContextDep) -> Response:
    """Answer that a running job needs its GPUs, although it does not use them now: no step is taken until then."""
    until = body.until if isinstance(body.until, datetime) else context.now() + body.until
    keep_gpus(context, caller, job_id, until)
    job = require_inspectable_job(context, caller, job_id)
    return JSONResponse(_view(context, caller, job) | {"idle_gpus": _idle_gpus(context, job)})


@router.get("/jobs/{job_id}/logs")
def show_log(
    job_id: IdPath,
    caller: CallerDep,
    context: ContextDep,
    stream: Annotated[str, Query(pattern="^(stdout|stderr)$")] = "stdout",
    offset: Annotated[int, Query(ge=-MAX_ID, le=MAX_ID)] = 0,
    limit: Annotated[int | None, Query(ge=0, le=MAX_ID)] = None,
    attempt: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
) -> Response:
    """Read raw bytes of one stream from any offset; a negative offset counts from the end."""
    job = require_inspectable_job(context, caller, job_id)
    log_range = LogRange(stream, offset, MAX_ID if limit is None else limit, attempt)
    part = read_log(context, job, log_range)
    headers = {"X-Log-Offset": str(part.offset), "X-Log-Size": str(part.size), "X-Content-Type-Options": "nosniff"}
    return Response(part.data, media_type="application/octet-stream", headers=headers)


@router.get("/jobs/{job_id}/logs/order")
def show_log_order(
    job_id: IdPath,
    caller: CallerDep,
    context: ContextDep,
    attempt: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
) -> Response:
    """Show the recorded order in which stdout and stderr were written: each part reaches up to its `end`."""
    order = read_stream_order(context, require_inspectable_job(context, caller, job_id), attempt)
    return JSONResponse({"items": [{"stream": stream, "end": end} for stream, end in order], "next_cursor": None})


def _preview(context: Context, caller: Caller, requests: list[JobRequest]) -> Response:
    """One job of each array."""
    preview = preview_jobs(context, caller, requests)
    shown = preview.jobs[:_MAX_PREVIEWED]
    views = [serialize_job_detail(job, None, None, []) | {"id": None, "array_id": None} for job in shown]
    hints = _hints(context, caller, preview.jobs) if preview.count == 1 else []
    return JSONResponse({"count": preview.count, "jobs": views, "hints": hints})


def _hints(context: Context, caller: Caller, jobs: Sequence[Job]) -> list[Json]:
    return [asdict(hint) for hint in find_usage_hints(context, caller, jobs)]


def _view(context: Context, caller: Caller, job: Job) -> dict[str, Any]:
    if not may_inspect(caller.user, job):
        return serialize_public_job(job)
    return serialize_job(
        job, context.controller.wait_reason(job), serialize_forecast(context.forecaster.forecast_of(job))
    )


def _idle_gpus(context: Context, job: Job) -> Json | None:
    notice = idle_notice(context, job)
    return None if notice is None else serialize_idle_notice(notice)


def _states(states: list[JobState] | None, unfinished: bool) -> set[JobState] | None:
    if not unfinished:
        return set(states) if states else None
    waiting_or_running = set(JobState) - TERMINAL_STATES
    return waiting_or_running & set(states) if states else waiting_or_running


def _only_own(caller: Caller, user: str | None) -> str:
    """The names of other users' jobs are hidden, so they cannot be searched."""
    if user not in (None, caller.user.name):
        raise Invalid(
            "You can search only the names of your own jobs.",
            "Omit name, or user.",
            fields={"name": "not yours"},
        )
    return caller.user.name


def _before(cursor: str | None) -> JobId | None:
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdecimal() or int(cursor) > MAX_ID:
        raise Invalid(
            "The cursor is not valid.", "Use next_cursor of the last response.", fields={"cursor": "unknown"}
        )
    return int(cursor)


class JobWaiter:
    """Waits for jobs; `unfinished` are those that have not ended."""

    def __init__(
        self, context: Context, caller: Caller, ids: Sequence[JobId], view: Callable[[Job], Json]
    ) -> None:
        self._context, self._caller, self._ids, self._view = context, caller, ids, view
        self.unfinished: set[JobId] = set()

    def refresh(self) -> None:
        """Reads the states from the store. Raises if a job does not exist or the caller may not inspect it."""
        with self._context.store.read() as conn:
            jobs = stored.get_owners_and_states(conn, self._ids)
        for job_id in self._ids:
            if job_id not in jobs:
                require_inspectable_job(self._context, self._caller, job_id)
            require_inspectable(self._caller, jobs[job_id])
        self.unfinished = {job.id for job in jobs.values() if job.state not in TERMINAL_STATES}

    def apply_events(self, events: Iterable[JobEvent]) -> None:
        self.unfinished -= {event.job_id for event in events if event.state in TERMINAL_STATES}

    def build_response(self) -> JSONResponse:
        """Slow for thousands of jobs: call it in a thread."""
        ended = [job_id for job_id in self._ids if job_id not in self.unfinished]
        with self._context.store.read() as conn:
            jobs = stored.get_jobs_without_spec(conn, ended)
        finished = [self._view(jobs[job_id]) for job_id in ended]
        return JSONResponse({"finished": finished, "unfinished": sorted(self.unfinished)})
