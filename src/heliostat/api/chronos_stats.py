"""Run statistics and dependency graphs in the format of Chronos, from firings and their jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from heliostat.errors import BadRequest
from heliostat.models import Job, JobId, JobState
from heliostat.models.schedules import Firing, FiringState, Schedule
from heliostat.services.context import Context
from heliostat.store import firings as fired
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


def rank_by_duration(context: Context, found: Sequence[Schedule], which: str) -> list[dict[str, Any]]:
    """Slowest first; jobs that never ran are omitted."""
    if which != "mean" and which not in _PERCENTILES:
        known = ", ".join(("mean", *_PERCENTILES))
        raise BadRequest(f"The statistic {which[:40]!a} does not exist.", f"Use one of: {known}.")
    timed = [(one.name, _milliseconds(_runs(context, one))) for one in found]
    rows = [
        {"jobNameLabel": name, "time": duration_histogram(times)[which] / 1000} for name, times in timed if times
    ]
    return sorted(rows, key=lambda row: -row["time"])


def list_unfinished_jobs(context: Context, schedule: Schedule) -> list[JobId]:
    with context.store.read() as conn:
        running = fired.list_unfinished_firings(conn, schedule.id)
        numbers = [n for one in running for n in range(one.job_id or 0, (one.last_job_id or -1) + 1)]
        return [job.id for job in get_jobs_without_spec(conn, numbers).values() if not job.is_terminal]


def schedule_run_state(context: Context, schedule: Schedule) -> str:
    """`idle`, `queued`, `2 running`."""
    with context.store.read() as conn:
        numbers = [one.job_id or 0 for one in fired.list_unfinished_firings(conn, schedule.id)]
        jobs = [job for job in get_jobs_without_spec(conn, numbers).values() if not job.is_terminal]
    running = sum(job.state in (JobState.RUNNING, JobState.STARTING) for job in jobs)
    return f"{running} running" if running else "queued" if jobs else "idle"


def dependency_graph_dot(found: Sequence[Schedule]) -> str:
    names = {one.id: _quoted(one.name) for one in found}
    nodes = [f"  {name};" for name in names.values()]
    edges = [f"  {names[p]} -> {names[one.id]};" for one in found for p in one.parents if p in names]
    return "\n".join(["digraph G {", *nodes, *edges, "}", ""])


def dependency_graph_csv(found: Sequence[Schedule], states: Mapping[int, str]) -> str:
    names = {one.id: _cell(one.name) for one in found}
    nodes = [f"node,{names[one.id]},{_last(one)},{states[one.id]}" for one in found]
    links = [f"link,{names[parent]},{names[one.id]}" for one in found for parent in one.parents if parent in names]
    return "".join(f"{line}\n" for line in (*nodes, *links))


def _runs(context: Context, schedule: Schedule) -> list[tuple[Firing, Job]]:
    """Newest first."""
    with context.store.read() as conn:
        found = [one for one in fired.list_firings(conn, schedule.id, _MAX_RUNS) if one.job_id is not None]
        jobs = get_jobs_without_spec(conn, [one.job_id or 0 for one in found])
    return [(one, jobs[one.job_id]) for one in found if one.job_id in jobs]


def _milliseconds(runs: Sequence[tuple[Firing, Job]]) -> list[float]:
    whole = [(job.started_at, job.ended_at) for _, job in runs]
    return sorted((end - start).total_seconds() * 1000 for start, end in whole if start and end)


def duration_histogram(times: Sequence[float]) -> dict[str, float]:
    """The histogram of sorted times, with the names of Chronos."""
    at = {
        name: times[min(len(times) - 1, int(part * len(times)))] if times else 0.0
        for name, part in _PERCENTILES.items()
    }
    return {**at, "mean": sum(times) / len(times) if times else 0.0, "count": len(times)}


def _task(schedule: Schedule, firing: Firing, job: Job) -> dict[str, Any]:
    shown = {name: f"{at:%m/%d/%y %H:%M:%S}" if at else "N/A" for name, at in _times(job)}
    return {
        "taskId": f"ct:{int(firing.due_at.timestamp() * 1000)}:{firing.tries - 1}:{schedule.name}:",
        "jobName": schedule.name,
        "slaveId": job.node or "",
        **shown,
        **_duration(job),
        "status": _STATUS.get(firing.state, "FAIL"),
    }


def _times(job: Job) -> Sequence[tuple[str, Any]]:
    return (("startTime", job.started_at), ("endTime", job.ended_at))


def _duration(job: Job) -> dict[str, str]:
    if job.started_at is None or job.ended_at is None:
        return {}
    left = int((job.ended_at - job.started_at).total_seconds())
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return {"duration": "".join([*parts, f"{left}s"])}


def _last(one: Schedule) -> str:
    if one.succeeded_at is None and one.failed_at is None:
        return "fresh"
    if one.failed_at is None or (one.succeeded_at is not None and one.succeeded_at > one.failed_at):
        return "success"
    return "failure"


def _cell(name: str) -> str:
    """Quotes a name for CSV if needed."""
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',"') else name


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
