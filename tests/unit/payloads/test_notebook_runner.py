"""The script inside the job of a notebook: which kernel it takes, and whether it believes what was kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from heliostat.models import notebooks as models
from heliostat.payloads import notebook_cells, notebook_runner
from heliostat.payloads.notebook_cells import (
    KernelMissing,
    choose_kernel,
    notebook_language,
    one_line,
    write_atomically,
)
from heliostat.payloads.notebook_runner import find_papermill, find_problem, prepare_files, write_reason

WHOLE = {"cells": [{}, {}], "metadata": {"papermill": {"end_time": "2026-11-16T12:00:00"}}}


def test_the_script_and_the_server_call_things_by_the_same_names() -> None:
    assert (notebook_runner.PLAN_VARIABLE, notebook_runner.RESULTS_FOLDER) == (
        models.NOTEBOOK_PLAN_VARIABLE,
        models.RESULTS_FOLDER,
    )


@pytest.mark.parametrize(
    ("kept", "fault"),
    [
        (WHOLE, ""),
        ("", "not readable"),
        (json.dumps(WHOLE)[:-20], "not readable"),
        ([], "0 of 2 cells"),
        ({**WHOLE, "cells": [{}]}, "1 of 2 cells"),
        ({**WHOLE, "metadata": {}}, "did not finish"),
        ({**WHOLE, "metadata": {"papermill": {"end_time": None}}}, "did not finish"),
    ],
)
def test_only_a_notebook_that_is_whole_is_believed(kept: object, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "out.ipynb"
    path.write_text(kept if isinstance(kept, str) else json.dumps(kept))
    found = find_problem(str(path), 2)
    assert fault in found
    assert bool(found) == bool(fault)


def test_a_notebook_that_is_not_there_is_missed(tmp_path: Path) -> None:
    assert find_problem(str(tmp_path / "none.ipynb"), 0) == "the executed notebook is missing"


ABOUT: dict[str, Any] = {"kernelspec": {"name": "conda-vision", "language": "python"}}


@pytest.mark.parametrize(
    ("asked", "about", "environment", "chosen"),
    [
        ("ir", ABOUT, "", "ir"),
        (None, ABOUT, "", "conda-vision"),
        (None, ABOUT, "3fa9", "job"),
        (None, {"kernelspec": {"name": "gone"}}, "", "python3"),
        (None, {}, "", "python3"),
        (None, {"language_info": {"name": "R"}}, "3fa9", "ir"),
    ],
)
def test_the_kernel_is_the_one_asked_for_or_the_environment_or_the_notebooks_own(
    asked: str | None, about: dict[str, Any], environment: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIOSTAT_ENVIRONMENT", environment)
    names = ["conda-vision", "ir", "job", "python3"]
    assert choose_kernel(asked, about, notebook_language(about), names) == chosen


def test_a_kernel_that_is_missing_is_named_with_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELIOSTAT_ENVIRONMENT", raising=False)
    with pytest.raises(KernelMissing, match="no kernel julia on its node; available: ir, python3"):
        choose_kernel("julia", {}, "python", ["ir", "python3"])
    monkeypatch.setenv("HELIOSTAT_ENVIRONMENT", "3fa9")
    with pytest.raises(KernelMissing, match="add ipykernel"):
        choose_kernel(None, {}, "python", ["python3"])


def test_what_an_attempt_before_left_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.ipynb").write_text("{}")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a.ipynb").symlink_to("/etc/passwd")
    (tmp_path / "results" / "a.html").write_text("old")
    (tmp_path / "inner").mkdir()
    output = prepare_files({"notebook": "a.ipynb"}, str(tmp_path / "inner"))
    assert output == str(tmp_path / "results" / "a.ipynb")
    assert list((tmp_path / "results").iterdir()) == []
    assert (tmp_path / "inner" / notebook_cells.INPUT_FILE).read_text() == "{}"


def test_papermill_is_the_one_we_brought_or_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("brought", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "papermill").write_text("#!/bin/sh\n")
        (tmp_path / name / "papermill").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "own"))
    monkeypatch.setenv("HELIOSTAT_JUPYTER", str(tmp_path / "brought" / "jupyter-lab"))
    assert find_papermill() == str(tmp_path / "brought" / "jupyter-lab")
    monkeypatch.setenv("HELIOSTAT_JUPYTER", "/nowhere/jupyter-lab")
    assert find_papermill() == str(tmp_path / "own" / "papermill")
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_papermill() == ""


def test_the_reason_is_left_for_the_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOSTAT_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("HELIOSTAT_ATTEMPT", "2")
    write_reason("cell 3 failed: " + "x" * 5000)
    assert len((tmp_path / ".notebook-2").read_text()) == notebook_runner.MAX_REASON_LENGTH


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    write_atomically(str(path), "first")
    (tmp_path / "a.ipynb.part").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(str(path), "second")
    assert path.read_text() == "first"


def test_long_texts_become_one_short_line() -> None:
    assert one_line("a\n  b\tc", 10) == "a b c"
    assert one_line("x" * 20, 5) == "xxxxx…"
