"""`--dry-run`: shows jobs as they would be submitted, and where each value comes from."""

import shlex
from collections.abc import Mapping
from typing import Any

from heliostat.cli.job_defaults import merge_job_fields
from heliostat.cli.output import Column, format_count, print_json, print_table, sanitize_text
from heliostat.cli.submitted_job_report import print_hints
from heliostat.cli.value_format import format_duration, format_mib
from heliostat.models.job_fields import JOB_FIELDS

_COLUMNS = (Column("FIELD"), Column("VALUE", shrinkable=True), Column("FROM"))
_TITLES = ("NAME", "PROJECT", "GPUS", "CPUS", "MEM", "TIME")
Layers = Mapping[str, Mapping[str, Any]]
"""Job fields by their name in the Python client, by where they come from; later layers win."""


def print_job_preview(preview: Mapping[str, Any], layers: Layers, as_json: bool) -> None:
    """`preview` is the response of the server to one job."""
    if as_json:
        print_json(preview)
        return
    (job,) = preview["jobs"]
    given = merge_job_fields(*layers.values())
    rows = []
    for field in JOB_FIELDS:
        known = given if field.kind == "software" else {**given, **job["request"]}
        value = known.get(field.name, given.get(field.python_name))
        if field.kind == "code" or (field.name == "workdir" and "upload" in given):
            continue
        if value in (None, [], {}) or (field.kind != "gpus" and value == field.default):
            continue
        origin = [name for name, layer in layers.items() if field.python_name in layer]
        rows.append([field.name, _text(field.kind, value), origin[-1] if origin else "server"])
    print_table(_COLUMNS, rows)
    print(f"{format_count(preview['count'], 'job')} would be accepted. Nothing is submitted.")
    print_hints(preview.get("hints", ()))


def print_jobs_preview(preview: Mapping[str, Any], as_json: bool) -> None:
    """`preview` is the response of the server to several jobs."""
    if as_json:
        print_json(preview)
        return
    columns = [Column(title, right_aligned=title in ("GPUS", "CPUS", "MEM", "TIME")) for title in _TITLES]
    print_table(columns, ([str(value) for value in _summary(job)] for job in preview["jobs"]))
    print(f"{format_count(preview['count'], 'job')} would be accepted. Nothing is submitted.")


def _summary(job: Mapping[str, Any]) -> tuple[object, ...]:
    amounts = (f"{job['gpus']:g}", job["cpus"], format_mib(job["memory_mib"]))
    return job["name"], job["project"], *amounts, format_duration(job["time_limit_seconds"])


def _text(kind: str, value: Any) -> str:
    if kind == "memory" and isinstance(value, int):
        return format_mib(value)
    if kind == "duration" and isinstance(value, int):
        return format_duration(value)
    if kind == "command" and isinstance(value, list):
        return sanitize_text(value[2] if value[:2] == ["/bin/sh", "-c"] else shlex.join(value))
    if kind == "script":
        return format_count(len(str(value).splitlines()), "line")
    if isinstance(value, dict):
        return sanitize_text(", ".join(f"{name}={text}" for name, text in value.items()))
    return sanitize_text(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
