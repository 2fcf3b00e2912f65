"""The programs that run inside jobs, as one file: it needs nothing but a shell and a Python."""

import ast
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from heliostat import payloads
from heliostat.payloads import archive
from heliostat.payloads.archive import (
    JUPYTERHUB_LAUNCHER,
    NOTEBOOK_RUNNER,
    RELAY,
    SESSION_LAUNCHER,
    pack_program,
    program_script,
    resolve_script,
)

PROGRAMS = (SESSION_LAUNCHER, NOTEBOOK_RUNNER, JUPYTERHUB_LAUNCHER, RELAY)
MODULES = sorted(set(Path(payloads.__file__).parent.glob("*.py")) - {Path(archive.__file__)})
OLDEST = (3, 7)


def run(folder: Path, content: bytes, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    script = folder / "script"
    script.write_bytes(content)
    script.chmod(0o700)
    environment = {"PATH": os.environ["PATH"], **more}
    return subprocess.run(
        [script, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_every_module_can_be_read_by_the_oldest_python(module: Path) -> None:
    ast.parse(module.read_text("utf-8"), feature_version=OLDEST)


def test_every_module_loads_from_the_archive_alone(tmp_path: Path) -> None:
    """`-S`: without the packages that are installed here, among them Heliostat itself."""
    path = tmp_path / "payloads.pyz"
    path.write_bytes(archive.build_zipapp())
    names = [f"heliostat.payloads.{module.stem}" for module in MODULES if module.stem != "__main__"]
    code = f"import sys; sys.path.insert(0, {str(path)!r}); import {', '.join(names)}; print(*sys.modules)"
    argv = [sys.executable, "-I", "-S", "-B", "-c", code]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert ran.stderr == ""
    ours = {name for name in ran.stdout.split() if name.partition(".")[0] == "heliostat"}
    assert ours == {"heliostat", "heliostat.payloads", *names}


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_has_a_main(program: str) -> None:
    with zipfile.ZipFile(io.BytesIO(pack_program(program))) as found:
        text = found.read(f"heliostat/payloads/{program.replace('-', '_')}.py").decode()
    assert "def main(" in text


def test_the_same_modules_make_the_same_bytes() -> None:
    first = archive.build_zipapp()
    archive.build_zipapp.cache_clear()
    assert archive.build_zipapp() == first


def test_what_a_user_has_in_the_environment_and_the_folder_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json.py", "heliostat.py", "sitecustomize.py"):
        (tmp_path / name).write_text("raise SystemExit('mine')")
    monkeypatch.chdir(tmp_path)
    more = {"PYTHONPATH": str(tmp_path), "HELIOSTAT_CHECKPOINT_DIR": str(tmp_path), "HELIOSTAT_ATTEMPT": "1"}
    words = ("service", "/bin/sh", "-c", 'echo "$PORT" "$HELIOSTAT_SESSION_PREFIX"')
    ran = run(tmp_path, pack_program(SESSION_LAUNCHER), *words, **more, HELIOSTAT_JOB_ID="7")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == (tmp_path / ".session-1").read_text().strip() + " /s/7/\n"


def test_a_mistyped_command_of_a_session_is_not_found_without_a_traceback(tmp_path: Path) -> None:
    more = {"HELIOSTAT_CHECKPOINT_DIR": str(tmp_path), "HELIOSTAT_ATTEMPT": "1", "HELIOSTAT_JOB_ID": "7"}
    ran = run(tmp_path, pack_program(SESSION_LAUNCHER), "custom", "tensorbord", "--port", "5", **more)
    assert (ran.returncode, ran.stderr) == (127, "tensorbord: not found\n")
    ran = run(tmp_path, pack_program(SESSION_LAUNCHER), "custom", "/", **more)
    assert (ran.returncode, ran.stderr) == (126, "/: Permission denied\n")


@pytest.mark.parametrize("program", [SESSION_LAUNCHER, NOTEBOOK_RUNNER, JUPYTERHUB_LAUNCHER])
def test_a_script_that_names_a_program_becomes_that_program(program: str) -> None:
    assert resolve_script(program_script(program)) == pack_program(program)


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/sh\ntrue\n",
        "#!/usr/bin/env python3\nfrom __future__ import annotations\n",  # of a job from before an upgrade
        "#!heliostat relay\n",
        "#!heliostat ../session-launcher\n",
        "#!heliostat session-launcher\necho mine\n",
        "#!/bin/sh\necho \udcff",
        "",
    ],
)
def test_every_other_script_stays_as_it_is(script: str) -> None:
    assert resolve_script(script) == script.encode("utf-8", "surrogateescape")


def test_arguments_are_words_and_never_shell(tmp_path: Path) -> None:
    content = pack_program(JUPYTERHUB_LAUNCHER, "/bin/echo", "a b; touch broken $(id)")
    more = {"HELIOSTAT_CHECKPOINT_DIR": str(tmp_path), "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:0/"}
    ran = run(tmp_path, content, "and 'more'", **more)
    assert ran.stdout.splitlines()[1] == "a b; touch broken $(id) and 'more'"
