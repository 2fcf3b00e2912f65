"""Metrics that a job reports from inside."""

import json
import math
import os
import re

from heliostat.errors import Conflict, Invalid

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}", re.ASCII)


def report_metric(name: str, value: float, step: int | None = None) -> None:
    """Reports a metric from inside a job. Needs no server and no token: it appends a line to a file."""
    if _NAME.fullmatch(name) is None:
        problem = "must have at most 63 letters, digits, _ . - and start with a letter or _"
        raise Invalid(f"name: {problem}.", "Choose another name.", fields={"name": problem})
    if not math.isfinite(value):
        raise Invalid(
            "value: must be a finite number.", "Report only finite numbers.", fields={"value": "is not finite"}
        )
    folder = os.environ.get("HELIOSTAT_CHECKPOINT_DIR")
    if folder is None:
        raise Conflict("Metrics can be reported only from inside a job.", "Call it from the command of a job.")
    line = json.dumps({"name": name, "value": float(value), **({} if step is None else {"step": int(step)})})
    with open(os.path.join(folder, "metrics.jsonl"), "ab", buffering=0) as file:
        file.write(f"{line}\n".encode())  # in one write: several processes may report at the same time
