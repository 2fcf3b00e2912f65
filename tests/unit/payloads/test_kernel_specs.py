"""Which environments appear as kernels, and under which names."""

import json
import os
import sys
from pathlib import Path

import pytest

from heliostat.payloads.kernel_specs import (
    find_environments,
    make_kernel_name,
    make_python_kernel_spec,
    write_kernel_specs,
)

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def make(place: Path, *, has_ipykernel: bool, python: str = sys.executable) -> Path:
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").symlink_to(python)
    packages = place / "lib" / f"python{VERSION}" / "site-packages"
    packages.mkdir(parents=True)
    if has_ipykernel:
        (packages / "ipykernel").mkdir()
    return place


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("HELIOSTAT_ENVIRONMENT", raising=False)
    return tmp_path


def test_environments_of_the_home_and_of_the_job_are_found_by_where_they_are(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(home / ".conda/envs/Vision 2", has_ipykernel=True)
    make(home / "venvs/nlp", has_ipykernel=True)
    make(home / ".virtualenvs/old", has_ipykernel=True)
    (home / "venvs/empty").mkdir()
    job = make(home / "job", has_ipykernel=False)
    monkeypatch.setenv("HELIOSTAT_ENVIRONMENT", "abc")
    monkeypatch.setenv("VIRTUAL_ENV", str(job))
    assert [name for name, _, _ in find_environments()] == ["job", "conda-vision-2", "venv-nlp", "venv-old"]


def test_one_without_ipykernel_borrows_that_of_jupyterlab_of_the_same_python(home: Path) -> None:
    lab = make(home / "lab", has_ipykernel=True)
    own = make_python_kernel_spec("own", str(make(home / "a", has_ipykernel=True)), None)
    borrowed = make_python_kernel_spec("borrowed", str(make(home / "b", has_ipykernel=False)), (VERSION, str(lab)))
    assert own is not None
    assert own["argv"][1:3] == ["-m", "ipykernel_launcher"]
    assert borrowed is None  # that folder holds no ipykernel
    packages = str(lab / "lib" / f"python{VERSION}" / "site-packages")
    borrowed = make_python_kernel_spec("borrowed", str(home / "b"), (VERSION, packages))
    assert borrowed is not None
    assert packages in borrowed["argv"][2]
    assert make_python_kernel_spec("other", str(home / "b"), ("3.2", packages)) is None


def test_kernels_are_written_into_the_folder_of_the_session_and_nowhere_else(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(home / "venvs/good", has_ipykernel=True)
    make(home / "venvs/bad", has_ipykernel=False, python="/bin/false")
    before = sorted(os.listdir(home))
    session = home.parent / "session"
    assert write_kernel_specs(str(session), str(home / "lab/bin/jupyter-lab")) == ["venv-good"]
    spec = json.loads((session / "kernels/venv-good/kernel.json").read_text())
    assert spec["display_name"] == "good (venv)"
    assert spec["env"]["VIRTUAL_ENV"] == str(home / "venvs/good")
    assert "venvs/bad cannot be a kernel" in capsys.readouterr().err
    assert sorted(os.listdir(home)) == before


@pytest.mark.parametrize(("status", "kernels"), [(0, ["ir"]), (1, [])])
def test_r_is_a_kernel_where_it_has_irkernel(
    home: Path, monkeypatch: pytest.MonkeyPatch, status: int, kernels: list[str]
) -> None:
    (home / "bin").mkdir()
    for name in ("R", "Rscript"):
        (home / "bin" / name).write_text(f"#!/bin/sh\necho \"$@\" >>'{home}/asked'\nexit {status}\n")
        (home / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert write_kernel_specs(str(home / "session"), "/nowhere/bin/jupyter-lab") == kernels
    assert "requireNamespace('IRkernel'" in (home / "asked").read_text()
    if kernels:
        spec = json.loads((home / "session/kernels/ir/kernel.json").read_text())
        assert (spec["display_name"], spec["argv"][-1]) == ("R", "{connection_file}")


def test_names_are_such_as_jupyter_takes() -> None:
    assert make_kernel_name("conda-Mein Env (3)!") == "conda-mein-env-3-"
