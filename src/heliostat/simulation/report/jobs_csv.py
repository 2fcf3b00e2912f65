"""The jobs of a comparison as CSV: a row for each job under each policy on each cluster."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TextIO

from heliostat.models.csv_cells import quote_formula
from heliostat.simulation.comparison import ComparisonColumn
from heliostat.simulation.metrics import compute_job_times

COLUMNS = (
    *("cluster", "policy", "job", "project", "user", "submitted_at", "started_at", "ended_at"),
    *("wait_seconds", "run_seconds", "gpus", "nodes", "preemptions"),
)


def write_jobs_csv(file: TextIO, columns: Sequence[ComparisonColumn]) -> None:
    """In the order of submission. Start, end and nodes are those of the last attempt; a job that never started has
    none."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for column in columns:
        writer.writerows([quote_formula(value) for value in row] for row in _rows(column))


def _rows(column: ComparisonColumn) -> Iterator[list[object]]:
    workload, result = column.scenario.workload, column.result
    attempted = result.attempts[:, 0].astype(int).tolist()
    last_attempt, attempts = {job: row for row, job in enumerate(attempted)}, Counter(attempted)
    times = compute_job_times(workload, result.attempts)
    waits = dict(zip(times.job_indexes.tolist(), times.wait_seconds.tolist(), strict=True))
    origin = workload.jobs[0].submitted_at
    for index, job in enumerate(workload.jobs):
        names = [column.scenario.cluster.nodes_text, result.policy, workload.job_ids[index], job.project, job.user]
        row, gpus = last_attempt.get(index), f"{job.resources.gpus * job.placement.tasks:g}"
        if row is None:
            yield [*names, _format_time(job.submitted_at), "", "", "", workload.run_seconds[index], gpus, "", 0]
            continue
        started, ended = (origin + timedelta(seconds=at) for at in result.attempts[row, 1:3].tolist())
        yield [
            *names,
            *(_format_time(at) for at in (job.submitted_at, started, ended)),
            round(waits[index], 6),
            workload.run_seconds[index],
            gpus,
            " ".join(result.attempt_nodes[row]),
            attempts[index] - 1,
        ]


def _format_time(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
