"""What may be run as a notebook: its text and its parameters, before anybody waits for a job."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from heliostat.errors import Invalid, TooLarge, invalid_field, printable
from heliostat.models.notebooks import MOST_NOTEBOOK_BYTES

_FORMAT = 4
_CELLS = ("code", "markdown", "raw")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}", re.ASCII)
_MOST_PARAMETERS = 200
_MOST_PARAMETER_BYTES = 64 * 1024  # all of them, written down


def count_cells(data: bytes) -> int:
    """How many cells a notebook has. Raises Invalid for what is none."""
    check_size(len(data))
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _no_notebook("it is not JSON") from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("nbformat"), int):
        raise _no_notebook("it has no nbformat")
    if notebook["nbformat"] != _FORMAT:
        raise _no_notebook(f"its format is {notebook['nbformat']}, not {_FORMAT}; open and save it in JupyterLab")
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not isinstance(notebook.get("metadata"), dict):
        raise _no_notebook("it has no cells or no metadata")
    for number, cell in enumerate(cells, 1):
        if not _is_cell(cell):
            raise _no_notebook(f"its cell {number} is none")
    return len(cells)


def check_size(size_bytes: int) -> None:
    if size_bytes > MOST_NOTEBOOK_BYTES:
        raise TooLarge(
            f"A notebook may have {MOST_NOTEBOOK_BYTES // 2**20} MiB, this has {size_bytes / 2**20:.1f} MiB.",
            "Clear its outputs (in JupyterLab: Edit, Clear Outputs of All Cells); keep data in files.",
        )


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Names that can be variables, values that JSON can say. Raises Invalid."""
    if len(parameters) > _MOST_PARAMETERS:
        raise invalid_field("parameters", f"there are more than {_MOST_PARAMETERS}")
    for name, value in parameters.items():
        if _NAME.fullmatch(name) is None:
            raise invalid_field("parameters", f"{printable(name)} cannot be the name of a variable")
        if isinstance(value, float) and not math.isfinite(value):
            raise invalid_field("parameters", f"{name} is not a finite number; send it as text")
    try:
        written = json.dumps(dict(parameters), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise invalid_field("parameters", "there is a value that JSON cannot say") from None
    if len(written) > _MOST_PARAMETER_BYTES:
        raise invalid_field("parameters", f"written down, they have more than {_MOST_PARAMETER_BYTES // 1024} KiB")


def _is_cell(cell: object) -> bool:
    if not isinstance(cell, dict) or cell.get("cell_type") not in _CELLS:
        return False
    source = cell.get("source")
    return isinstance(source, str) or (isinstance(source, list) and all(isinstance(line, str) for line in source))


def _no_notebook(why: str) -> Invalid:
    return Invalid(
        f"This is no notebook: {why}.",
        "Name a file that JupyterLab has written, such as analysis.ipynb.",
        fields={"notebook": why},
    )
