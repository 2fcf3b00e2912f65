"""Quotas as options, and in words."""

from typing import Annotated, Any

import typer

from heliostat.errors import Invalid

RunningGpus = Annotated[str | None, typer.Option(metavar="N", help="GPUs at once; 'none': no limit.")]
QueuedGpus = Annotated[
    str | None, typer.Option(metavar="N", help="GPUs of all jobs that are not over; 'none': no limit.")
]
GpuHours = Annotated[
    str | None, typer.Option("--gpu-hours-per-month", metavar="N", help="GPU-hours a month; 'none': no limit.")
]
OPTIONS = "--running-gpus, --queued-gpus or --gpu-hours-per-month"


def quota_changes(running_gpus: str | None, queued_gpus: str | None, gpu_hours: str | None) -> dict[str, Any]:
    """`{"quota": …}` with what is to change; nothing when nothing is."""
    given = {"running_gpus": running_gpus, "queued_gpus": queued_gpus, "gpu_hours_per_month": gpu_hours}
    quota = {name: _limit(name, text) for name, text in given.items() if text is not None}
    return {"quota": quota} if quota else {}


def quota_in_words(quota: dict[str, int | None]) -> str:
    """`8 running, 64 queued, 500 h/month`: of GPUs."""
    units = {"running_gpus": "running", "queued_gpus": "queued", "gpu_hours_per_month": "h/month"}
    limits = [f"{quota[name]} {unit}" for name, unit in units.items() if quota.get(name) is not None]
    return ", ".join(limits) or "-"


def _limit(name: str, text: str) -> int | None:
    if text.lower() == "none":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        option = f"--{name.replace('_', '-')}"
        raise Invalid(f"{option}: {text!r} is not a limit.", "Write a whole number from 0 on, or none.")
    return int(text)
