"""Notebooks that run as batch jobs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NOTEBOOK_PLAN_VARIABLE = "HELIOSTAT_NOTEBOOK"
"""Environment variable of the job that contains the notebook to run."""
RESULTS_FOLDER = "results"
"""Folder in the job's own folder for results that users download."""
MAX_NOTEBOOK_BYTES = 32 * 2**20
_CONSTANTS: Mapping[str, Any] = {"True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class NotebookRequest:
    """A notebook from an upload, or from the working directory of a running session."""

    path: str  # below that folder
    upload: str | None = None
    session: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kernel: str | None = None  # None: the environment of the job, or the kernel in the notebook


def parse_parameter_value(text: str) -> Any:
    """A typed parameter, parsed like papermill does: `3` and `0.1` are numbers, `True`, `False` and `None` are
    constants, everything else is text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text
    return text
