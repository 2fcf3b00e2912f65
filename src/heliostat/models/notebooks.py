"""Notebooks that run as batch jobs: what is asked of one, and how its job is known."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NOTEBOOK_PLAN_VARIABLE = "HELIOSTAT_NOTEBOOK"
"""The variable in which the job of a notebook finds what to run."""
RESULTS_FOLDER = "results"
"""The folder, below a job's own, in which it keeps what people fetch."""
MAX_NOTEBOOK_BYTES = 32 * 2**20
_WORDS: Mapping[str, Any] = {"True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class NotebookRequest:
    """A notebook out of an upload, or of a running session's working folder."""

    path: str  # below that folder
    upload: str | None = None
    session: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kernel: str | None = None  # None: the environment of the job, or what the notebook names


def parse_parameter_value(text: str) -> Any:
    """A parameter as somebody typed it, as papermill takes it: `3` and `0.1` are numbers, `True`,
    `False` and `None` are themselves, all else is text."""
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text
    return text
