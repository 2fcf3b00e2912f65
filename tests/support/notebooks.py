"""Notebooks for tests, from the texts of their cells."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

JUPYTER_LAB = Path(sys.executable).parents[1] / "jupyter" / "bin" / "jupyter-lab"


def make_notebook(cells: Sequence[str]) -> dict[str, Any]:
    """The first of them holds the parameters."""
    made = [_cell(text, number) for number, text in enumerate(cells)]
    kernel = {"name": "python3", "language": "python", "display_name": "Python 3"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": made}


def write_notebook(path: Path, *cells: str) -> Path:
    path.write_text(json.dumps(make_notebook(cells)))
    return path


def _cell(text: str, number: int) -> dict[str, Any]:
    about = {} if number else {"tags": ["parameters"]}
    rest = {"source": text, "outputs": [], "execution_count": None}
    return {"cell_type": "code", "id": f"cell{number}", "metadata": about, **rest}
