"""Reads metrics of jobs, and outputs of jobs of workflows, when they end.

They are in files of the job's user, in folders that no other user can write or replace. So a job needs no token to
report.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterable, Mapping

from heliostat.config import Home
from heliostat.controller.failure_details import (
    add_command_not_found,
    add_image_fetch_failure,
    add_notebook_failure,
    read_job_text,
)
from heliostat.engines.contract import Engine
from heliostat.engines.job_file_reader import read_owned_file
from heliostat.engines.job_variables import OUTPUT_VALUES_FILE, job_workflow_membership, workflow_job_folder
from heliostat.models import AttemptEnded, Job, JobId
from heliostat.models.environments import INTERNAL_JOB_KINDS
from heliostat.models.workflows import Metric
from heliostat.store.database import Store, Transaction
from heliostat.store.workflows import set_job_metrics, set_job_outputs

METRICS_FILE, METRICS_JSON_FILE = "metrics.jsonl", "metrics.json"
MAX_OUTPUTS = 100
MAX_METRICS = 100
MAX_OUTPUT_BYTES = 8 * 1024  # of all values of a job as JSON: those of thousands of jobs are read at once
MAX_METRIC_LINES = 2000
_MAX_OUTPUT_FILE_BYTES = 64 * 1024
_MAX_METRIC_FILE_BYTES = 64 * 1024
_MAX_VALUE_LENGTH = 4096
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}", re.ASCII)


def collect_results(store: Store, engine: Engine, home: Home, job: Job, seen: AttemptEnded) -> AttemptEnded:
    """Called before the end is recorded, so that dependent jobs see the results. Idempotent: after a crash the
    same files are read and stored again."""
    for add_failure in (add_image_fetch_failure, add_notebook_failure, add_command_not_found):
        seen = add_failure(engine, job, seen)
    if job.kind in INTERNAL_JOB_KINDS:
        return seen
    values, metrics = read_outputs(home, job), read_metrics(engine, job.id)

    def change(tx: Transaction) -> None:
        set_job_outputs(tx, job.id, values)
        set_job_metrics(tx, job.id, metrics)

    if values or metrics or (job.part is not None and job.attempt > 1):
        store.write(change)
    return seen


def read_outputs(home: Home, job: Job) -> dict[str, str]:
    """Output values of the job. If a name occurs twice, the last value counts."""
    part = job_workflow_membership(job)
    if part is None:
        return {}
    return parse_outputs(
        read_owned_file(
            workflow_job_folder(str(home.path), part), OUTPUT_VALUES_FILE, _MAX_OUTPUT_FILE_BYTES, end=True
        )
    )


def read_metrics(engine: Engine, job_id: JobId, max_lines: int = MAX_METRIC_LINES) -> dict[str, Metric]:
    """From the last lines only: the controller waits for this."""
    reported = read_job_text(engine, job_id, f"checkpoints/{METRICS_FILE}", _MAX_METRIC_FILE_BYTES, end=True)
    lines = reported.splitlines()[-max_lines:]
    metrics = aggregate_metrics(
        report for line in lines if line.lstrip().startswith("{") and (report := _parse_report(line))
    )
    text = read_job_text(engine, job_id, f"checkpoints/{METRICS_JSON_FILE}", _MAX_METRIC_FILE_BYTES)
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(text or "{}")
        pairs = document.items() if isinstance(document, dict) else ()
        metrics |= aggregate_metrics(
            (name, float(value), None) for name, value in pairs if _is_metric(name, value)
        )
    return dict(list(metrics.items())[:MAX_METRICS])


def parse_outputs(text: str) -> dict[str, str]:
    """Lines of KEY=VALUE; other lines are ignored."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and _NAME.fullmatch(name) and len(value) <= _MAX_VALUE_LENGTH and "\0" not in value:
            values.pop(name, None)
            values[name] = value
    return _newest_values(values)


def _newest_values(values: Mapping[str, str]) -> dict[str, str]:
    """The newest values within the limits."""
    kept: list[tuple[str, str]] = []
    left = MAX_OUTPUT_BYTES
    for name, value in list(values.items())[: -MAX_OUTPUTS - 1 : -1]:
        left -= len(json.dumps({name: value}))
        if left < 0:
            break
        kept.append((name, value))
    return dict(reversed(kept))


def aggregate_metrics(reports: Iterable[tuple[str, float, int | None]]) -> dict[str, Metric]:
    """Last, minimum and maximum of each name."""
    metrics: dict[str, Metric] = {}
    for name, value, step in reports:
        known = metrics.get(name)
        if known is None:
            if len(metrics) < MAX_METRICS:
                metrics[name] = Metric(name, value, step, value, value)
            continue
        least, most = min(known.least, value), max(known.most, value)
        metrics[name] = Metric(name, value, step, least, most, known.count + 1)
    return metrics


def _parse_report(line: str) -> tuple[str, float, int | None] | None:
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        return None  # truncated at the beginning, or not a report
    if not isinstance(report, dict) or not _is_metric(report.get("name"), report.get("value")):
        return None
    step = report.get("step")
    is_step = isinstance(step, int) and not isinstance(step, bool) and abs(step) < 2**53
    return report["name"], float(report["value"]), step if is_step else None


def _is_metric(name: object, value: object) -> bool:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or isinstance(value, bool):
        return False
    return isinstance(value, int | float) and abs(value) < 1e300 and math.isfinite(value)
