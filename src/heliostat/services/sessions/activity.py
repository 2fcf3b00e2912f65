"""Whether somebody uses a session: what its kernels and terminals say, and what its devices do."""

import contextlib
import http.client
import json
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from heliostat.errors import HeliostatError
from heliostat.models import Job
from heliostat.models.samples import DEVICE_COLUMNS, USAGE_COLUMNS, job_subject
from heliostat.models.sessions import Target
from heliostat.services.context import Context
from heliostat.services.job_http import get
from heliostat.services.proxying import Way, endpoint, find_way
from heliostat.store.sample_chunks import Grid, onto_grid

_PATIENCE_SECONDS = 10.0  # a relay may have to be started first
_MOST_BYTES = 2**18
_LOOK_BACK_SECONDS = 120
_BUSY_CORES, _BUSY_PERCENT = 0.5, 3.0
_AT_WORK = ("busy", "starting", "restarting", "autorestarting")


def ask_jupyter(context: Context, job: Job) -> tuple[bool, datetime | None] | None:
    """Whether a cell runs, and when a kernel or terminal last did something; None: it did not say."""
    try:
        way = find_way(context, Target(job.id))
        kernels, terminals = (_ask(context, way, path) for path in ("api/kernels", "api/terminals"))
    except (OSError, http.client.HTTPException, HeliostatError, ValueError, RecursionError):
        return None
    is_busy = any(one.get("execution_state") in _AT_WORK for one in kernels)
    return is_busy, max(_times([*kernels, *terminals]), default=None)


def works(context: Context, job: Job) -> bool:
    """Whether its devices, or more than half a core, were at work in the last two minutes.

    Slurm tells of cores only.
    """
    end = int(context.now().timestamp()) + 1
    chunks = context.samples.read(job_subject(job.id), end - _LOOK_BACK_SECONDS, end)
    if not chunks:
        return False
    row = onto_grid(chunks, Grid(end - _LOOK_BACK_SECONDS, _LOOK_BACK_SECONDS, 1)).mean[0].tolist()
    devices = row[len(USAGE_COLUMNS) :: len(DEVICE_COLUMNS)]
    return _above(row[0], _BUSY_CORES) or any(_above(value, _BUSY_PERCENT) for value in devices)


def _above(value: float, least: float) -> bool:
    return not math.isnan(value) and value > least


def _ask(context: Context, way: Way, path: str) -> list[dict[str, Any]]:
    target = f"{way.target.prefix}{path}?no_track_activity=1"
    shown = {"Authorization": way.authorization or ""}
    status, text = get(endpoint(context, way), target, shown, _PATIENCE_SECONDS, _MOST_BYTES)
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
