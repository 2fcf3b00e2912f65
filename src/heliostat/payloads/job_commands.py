"""`helio` inside a job: the commands that need no server, with any Python 3.

Other commands run with the server's installation, if the job's user may read it.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from typing import NoReturn

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}", re.ASCII)


def main(arguments: list[str]) -> None:
    """`arguments`: the Python and the package of the server, then the words of the command line."""
    python, package, words = arguments[0], arguments[1], arguments[2:]
    if words[:1] == ["report-metric"]:
        _report_metric(words[1:])
    elif words == ["checkpointed"]:
        _checkpointed()
    elif os.access(python, os.X_OK) and os.access(package, os.R_OK):
        os.execv(python, [python, "-I", "-m", "heliostat.cli.main", *words])  # noqa: S606 - no shell is needed
    else:
        _fail("On this node, helio has only the commands report-metric NAME VALUE and checkpointed.")


def _report_metric(words: list[str]) -> None:
    words, as_json = [word for word in words if word != "--json"], "--json" in words
    try:
        step = int(words.pop(words.index("--step") + 1)) if "--step" in words else None
        name, value = [word for word in words if word != "--step"]
        number = float(value)
    except (ValueError, IndexError):
        _fail("Write helio report-metric NAME VALUE [--step N]; VALUE is a number.")
    if _NAME.fullmatch(name) is None:
        _fail("name: must have at most 63 letters, digits, _ . - and start with a letter or _.")
    if not math.isfinite(number):
        _fail("value: must be a finite number.")
    metric = {"name": name, "value": number, "step": step}
    line = json.dumps({key: given for key, given in metric.items() if given is not None}) + "\n"
    with open(os.path.join(_job_variable("HELIOSTAT_CHECKPOINT_DIR"), "metrics.jsonl"), "ab", buffering=0) as file:
        file.write(line.encode())  # in one write: several processes may report at the same time
    if as_json:
        print(json.dumps(metric, indent=2))


def _checkpointed() -> None:
    path = _job_variable("HELIOSTAT_CHECKPOINT_FILE")
    with open(path, "ab"):
        os.utime(path)


def _job_variable(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        _fail("This command works only inside a job.")
    return value


def _fail(message: str) -> NoReturn:
    sys.exit("helio: " + message)
