"""Tables and details of jobs: `helio ps`, `helio show`, `helio top`."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from heliostat.cli.forecast_format import format_forecast, format_likely_start
from heliostat.cli.output import Cell, Column, StateCell, format_count, print_table
from heliostat.cli.value_format import format_duration, format_mib, format_time, seconds_between

if TYPE_CHECKING:
    from heliostat.client.api_types import JobData
    from heliostat.client.slurm import ForeignJob

_MAX_RELATIVES = 8  # parents or children shown
JOB_COLUMNS = (
    Column("ID", right_aligned=True),
    Column("NAME", shrinkable=True),
    Column("USER", optional=True),
    Column("STATE"),
    Column("GPUS"),
    Column("CPUS", right_aligned=True, optional=True),
    Column("MEM", right_aligned=True, optional=True),
    Column("TIME", right_aligned=True),
    Column("NODE", optional=True, merges_into="REASON"),
    Column("REASON", shrinkable=True, min_width=34),
)


def job_row(job: "JobData") -> list[Cell]:
    return [
        str(job["id"]),
        _name(job),
        job["user"],
        StateCell(job["state"]),
        _gpus(job),
        str(job["cpus"] * _tasks(job)),
        format_mib(job["memory_mib"] * _tasks(job)),
        format_duration(_time(job)),
        _nodes(job) or "-",
        "; ".join(filter(None, [_soon(job), _why(job)])),
    ]


FOREIGN_JOB_COLUMNS = (
    Column("ID"),
    Column("NAME", shrinkable=True),
    Column("USER"),
    Column("STATE"),
    Column("GPUS", right_aligned=True),
    Column("CPUS", right_aligned=True, optional=True),
    Column("MEM", right_aligned=True, optional=True),
    Column("SINCE"),
    Column("NODES OR REASON", shrinkable=True),
)


def foreign_job_row(job: "ForeignJob") -> list[Cell]:
    """A job that was submitted to Slurm directly."""
    since = job["started_at"] or job["submitted_at"]
    return [
        job["id"],
        job["name"] or "-",
        job["user"],
        StateCell(job["state"]),
        str(job["gpus"]),
        str(job["cpus"]),
        format_mib(job["memory_mib"]),
        format_time(since) if since else "-",
        ",".join(job["nodes"]) or job["reason"] or "-",
    ]


def job_details(job: "JobData") -> list[tuple[str, Cell | None]]:
    """All details of a job; rows with None are not printed."""
    spec: dict[str, Any] = job.get("spec") or {}
    limit = job["time_limit_seconds"]
    return [
        ("job", str(job["id"])),
        ("name", _name(job)),
        ("state", StateCell(job["state"])),
        ("reason", _why(job) or None),
        ("starts", format_forecast(forecast) if (forecast := job.get("forecast")) else None),
        ("exit code", _text(job["exit_code"]) if job["exit_code"] == 0 or job["reason"] else None),
        ("user", f"{job['user']} in {job['project']}"),
        ("requests", _requested_resources(job)),
        ("node request", _node_request(job)),
        (
            "time limit",
            "none" if limit is None else format_duration(limit) + (", overtime" * job.get("overtime", False)),
        ),
        ("array", _array(job)),
        ("not before", format_time(begin) if (begin := job.get("begin_at")) else None),
        (
            "schedule",
            f"{origin['name']}, due {format_time(origin['due_at'])}" if (origin := job.get("schedule")) else None,
        ),
        ("waits for" if job.get("parents_left") else "waited for", _relatives(job, "parent")),
        ("children", _relatives(job, "child")),
        ("priority", _text(job["priority"] or None)),
        ("class", _class(job)),
        ("preempted", format_count(job["preemptions"], "time") if job.get("preemptions") else None),
        ("node", _nodes(job)),
        ("devices", ", ".join(job["devices"]) or None),
        ("submitted", format_time(job["submitted_at"])),
        ("started", format_time(job["started_at"]) if job["started_at"] else None),
        ("work saved", format_time(job["checkpointed_at"]) if job.get("checkpointed_at") else None),
        ("ended", format_time(job["ended_at"]) if job["ended_at"] else None),
        ("run time" if job["started_at"] else "wait time", format_duration(_time(job))),
        ("idle GPUs", _idle_gpus(job)),
        ("used", format_accounted_usage(job.get("accounting_usage"))),
        ("metrics", format_metrics(job.get("metrics"))),
        ("attempt", _text(job["attempt"] or None)),
        ("retries", _retries(job)),
        ("notify", ", ".join(job.get("notify", [])) or None),
        ("command", shlex.join(spec["command"]) if spec.get("command") else None),
        ("script", format_count(len(spec["script"].splitlines()), "line") if spec.get("script") else None),
        ("environment", (job.get("environment") or "")[:12] or None),
        ("image", spec.get("image")),
        ("runtime", spec.get("runtime")),
        ("mounts", " ".join(spec["mounts"]) if spec.get("mounts") else None),
        ("network", spec.get("network")),
        ("workdir", spec.get("workdir")),
        ("env", " ".join(sorted(spec["env"])) if spec.get("env") else None),
    ]


def _idle_gpus(job: "JobData") -> str | None:
    """`not used since 14:05. Unless they are used, the job ends at 15:05 UTC.`"""
    if not (idle := job.get("idle_gpus")):
        return None
    if idle["kept_until"]:
        return f"kept until {format_time(idle['kept_until'])}"
    parts = [f"not used since {format_time(idle['idle_since'])}"]
    if idle["next_step"]:
        parts.append(f"{idle['next_step']} at {format_time(idle['next_step_at'])}")
    return ". ".join([*parts, f"To keep them: helio keep {job['id']} --for 4h"])


def format_accounted_usage(used: Mapping[str, Any] | None) -> str | None:
    """`10m24s CPU time, 20m00s GPU time, 3.1G peak memory`; None: unknown."""
    if not used:
        return None
    times = [("cpu_seconds", "CPU time"), ("gpu_seconds", "GPU time")]
    parts = [f"{format_duration(used[name])} {label}" for name, label in times if used[name] is not None]
    if used["memory_mib"] is not None:
        parts.append(f"{format_mib(used['memory_mib'])} peak memory")
    return ", ".join([*parts, *(["out of memory"] if used["out_of_memory"] else [])]) or None


def format_metrics(metrics: Mapping[str, Any] | None) -> str | None:
    """`accuracy 0.93 (step 100), loss 0.1`."""
    texts = [
        f"{name} {data['value']:g}" + ("" if data["step"] is None else f" (step {data['step']})")
        for name, data in (metrics or {}).items()
    ]
    return ", ".join(texts) or None


def print_attempts(attempts: list[dict[str, Any]]) -> None:
    columns = (
        Column("ATTEMPT", right_aligned=True),
        Column("STATE"),
        Column("NODE"),
        Column("STARTED"),
        Column("RAN"),
    )
    rows = [
        [
            str(attempt["number"]),
            StateCell(attempt["state"]),
            attempt["node"],
            format_time(attempt["started_at"]),
            format_duration(seconds_between(attempt["started_at"], attempt["ended_at"])),
            _in_one_line(attempt["reason"] or ""),
        ]
        for attempt in attempts
    ]
    print_table((*columns, Column("REASON", shrinkable=True)), rows)


def _name(job: "JobData") -> str:
    name = job["name"] or "(private)"
    return name if job["array_index"] is None else f"{name}[{job['array_index']}]"


def _gpus(job: "JobData") -> str:
    """Sum over all tasks, as in the other columns."""
    if not job["gpus"]:
        return "-"
    number = f"{job['gpus'] * _tasks(job):g}"
    return f"{number}x{job['gpu_type']}" if job["gpu_type"] else number


def _tasks(job: "JobData") -> int:
    return job.get("tasks", 1)


def _nodes(job: "JobData") -> str | None:
    """`n01 +3`: the first node and the number of other nodes."""
    others = len({place["node"] for place in job.get("places", [])}) - 1
    return f"{job['node']} +{others}" if others > 0 else job["node"]


def _time(job: "JobData") -> float | None:
    """Seconds that it has run, or has waited if it has not started."""
    if job["started_at"]:
        return seconds_between(job["started_at"], job["ended_at"])
    return seconds_between(job["submitted_at"], job["ended_at"])


def _why(job: "JobData") -> str:
    if job["stop_requested"]:
        return f"stopping ({job['stop_requested']})"
    if job["reason"]:
        return _in_one_line(job["reason"])
    return f"exit code {job['exit_code']}" if job["exit_code"] else ""


def _in_one_line(text: str) -> str:
    return " · ".join(text.splitlines())


def _soon(job: "JobData") -> str | None:
    forecast = job.get("forecast")
    return format_likely_start(forecast) if forecast else None


def _requested_resources(job: "JobData") -> str:
    kind = f"{job['gpu_type']} GPU" if job["gpu_type"] else "GPU"
    gpus = [f"{job['gpus']:g} {kind}{'s' if job['gpus'] > 1 else ''}"] if job["gpus"] else []
    if gpus and job.get("gpu_memory_mib"):
        gpus[0] += f" with {format_mib(job['gpu_memory_mib'])} each"
    each = ", ".join([*gpus, format_count(job["cpus"], "CPU"), f"{format_mib(job['memory_mib'])} memory"])
    return each if _tasks(job) == 1 else f"{_tasks(job)} tasks, each {each}"


def _node_request(job: "JobData") -> str | None:
    spread = ["one node per task"] if job.get("layout") == "spread" and _tasks(job) > 1 else []
    exclusive = ["exclusive"] if job.get("exclusive") else []
    reservation = [f"in reservation {name}"] if (name := job.get("reservation")) else []
    return ", ".join([*spread, *exclusive, *job.get("labels", []), *reservation]) or None


def _class(job: "JobData") -> str | None:
    name, preemptible = job.get("priority_class", "normal"), job.get("preemptible", False)
    return None if name == "normal" and not preemptible else name + ", preemptible" * preemptible


def _retries(job: "JobData") -> str | None:
    if not job["max_retries"]:
        return None
    delay = job.get("retry_delay_seconds")
    wait = f", first after {format_duration(delay)}" if delay else ""
    return f"{job['retries']} of {job['max_retries']} used, on {', '.join(job.get('retry_on', []))}{wait}"


def _array(job: "JobData") -> str | None:
    if job["array_id"] is None:
        return None
    limit = f", at most {job['array_limit']} at once" if job["array_limit"] else ""
    return f"{job['array_id']}, index {job['array_index']}{limit}"


def _relatives(job: "JobData", kind: str) -> str | None:
    """The first few parents or children."""
    if kind == "parent":
        relatives, count = job.get("parents", []), job.get("parent_count", 0)
    else:
        relatives, count = job.get("children", []), job.get("child_count", 0)
    shown = [
        f"{relative['job_id']} ({_rule(relative)}{relative['state']})" for relative in relatives[:_MAX_RELATIVES]
    ]
    return ", ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "") or None


def _rule(relative: dict[str, Any]) -> str:
    return {"any": "after any end, ", "failed": "after a failure, ", "built": "builds its environment, "}.get(
        relative["rule"], ""
    )


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
