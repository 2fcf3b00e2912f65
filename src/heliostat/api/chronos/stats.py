"""Run statistics in the format of Chronos, from firings and their jobs."""

from collections.abc import Sequence
from typing import Any

from heliostat.errors import BadRequest
from heliostat.models import Job, JobId, JobState
from heliostat.models.schedules import Firing, FiringState, Schedule
from heliostat.services.context import Context
from heliostat.store import firings as stored
from heliostat.store.jobs import get_jobs_without_spec

_MAX_RUNS = 100
_PERCENTILES = {
    "75thPercentile": 0.75,
    "95thPercentile": 0.95,
    "98thPercentile": 0.98,
    "99thPercentile": 0.99,
    "median": 0.5,
}
_STATUS = {FiringState.RUNNING: "RUNNING", FiringState.SUCCEEDED: "SUCCESS"}


def schedule_statistics(context: Context, schedule: Schedule) -> dict[str, Any]:
    runs = _runs(context, schedule)
    history = [_task(schedule, firing, job) for firing, job in runs]
    return {"histogram": duration_histogram(_milliseconds(runs)), "taskStatHistory": history}


def rank_by_duration(context: Context, schedules: Sequence[Schedule], which: str) -> list[dict[str, Any]]:
    """Slowest first; jobs that never ran are omitted."""
    if which != "mean" and which not in _PERCENTILES:
        known = ", ".join(("mean", *_PERCENTILES))
        raise BadRequest(f"The statistic {which[:40]!a} does not exist.", f"Use one of: {known}.")
    durations = [(schedule.name, _milliseconds(_runs(context, schedule))) for schedule in schedules]
    rows = [
        {"jobNameLabel": name, "time": duration_histogram(times)[which] / 1000}
        for name, times in durations
        if times
    ]
    return sorted(rows, key=lambda row: -row["time"])


def list_unfinished_jobs(context: Context, schedule: Schedule) -> list[JobId]:
    with context.store.read() as conn:
        running = stored.list_unfinished_firings(conn, schedule.id)
        job_ids = [n for firing in running for n in range(firing.job_id or 0, (firing.last_job_id or -1) + 1)]
        return [job.id for job in get_jobs_without_spec(conn, job_ids).values() if not job.is_terminal]


def schedule_run_state(context: Context, schedule: Schedule) -> str:
    """`idle`, `queued`, `2 running`."""
    with context.store.read() as conn:
        job_ids = [firing.job_id or 0 for firing in stored.list_unfinished_firings(conn, schedule.id)]
        jobs = [job for job in get_jobs_without_spec(conn, job_ids).values() if not job.is_terminal]
    running = sum(job.state in (JobState.RUNNING, JobState.STARTING) for job in jobs)
    return f"{running} running" if running else "queued" if jobs else "idle"


def _runs(context: Context, schedule: Schedule) -> list[tuple[Firing, Job]]:
    """Newest first."""
    with context.store.read() as conn:
        firings = [
            firing for firing in stored.list_firings(conn, schedule.id, _MAX_RUNS) if firing.job_id is not None
        ]
        jobs = get_jobs_without_spec(conn, [firing.job_id or 0 for firing in firings])
    return [(firing, jobs[firing.job_id]) for firing in firings if firing.job_id in jobs]


def _milliseconds(runs: Sequence[tuple[Firing, Job]]) -> list[float]:
    times = [(job.started_at, job.ended_at) for _, job in runs]
    return sorted((end - start).total_seconds() * 1000 for start, end in times if start and end)


def duration_histogram(times: Sequence[float]) -> dict[str, float]:
    """The histogram of sorted times, with the names of Chronos."""
    percentiles = {
        name: times[min(len(times) - 1, int(fraction * len(times)))] if times else 0.0
        for name, fraction in _PERCENTILES.items()
    }
    return {**percentiles, "mean": sum(times) / len(times) if times else 0.0, "count": len(times)}


def _task(schedule: Schedule, firing: Firing, job: Job) -> dict[str, Any]:
    times = {name: f"{at:%m/%d/%y %H:%M:%S}" if at else "N/A" for name, at in _times(job)}
    return {
        "taskId": f"ct:{int(firing.due_at.timestamp() * 1000)}:{firing.tries - 1}:{schedule.name}:",
        "jobName": schedule.name,
        "slaveId": job.node or "",
        **times,
        **_duration(job),
        "status": _STATUS.get(firing.state, "FAIL"),
    }


def _times(job: Job) -> Sequence[tuple[str, Any]]:
    return (("startTime", job.started_at), ("endTime", job.ended_at))


def _duration(job: Job) -> dict[str, str]:
    if job.started_at is None or job.ended_at is None:
        return {}
    seconds = int((job.ended_at - job.started_at).total_seconds())
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
    return {"duration": "".join([*parts, f"{seconds}s"])}
