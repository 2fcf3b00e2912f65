"""Golden cases: what a job asks for in NAME.json, the exact script it starts as in NAME.sh, and that it does it.

After a change that is meant, UPDATE_CASES=1 writes the scripts anew; read the difference.
"""

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from heliostat.engines.local.script import Person, Places, payload_script
from heliostat.models import Attempt, Job, JobSpec, JobState, Resources

CASES = Path(__file__).parents[2] / "cases" / "payload_script"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))
SHELLS = (["sh"], ["dash"], ["bash", "--posix"], ["busybox", "sh"])  # any of them may be a machine's /bin/sh


def script_of(case: dict[str, Any]) -> str:
    spec = JobSpec(tuple(case["command"]), case.get("script"), case.get("workdir"), case.get("env", {}))
    job = Job(
        id=12,
        kind="batch",
        name=case.get("name", "train"),
        state=JobState.STARTING,
        user="ann",
        unix_user="ann",
        project=case.get("project", "vision"),
        resources=Resources(2, 4096, len(case.get("devices", ()))),
        spec=spec,
        submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
        array_id=case.get("array_id"),
        array_index=case.get("array_index"),
        attempt=1,
    )
    attempt = Attempt("12.1", job, "gpu-1", tuple(case.get("devices", ())))
    person = Person("ann", 1001, 1001, case.get("home", "/home/ann"), "/bin/bash")
    places = Places(case.get("workdir") or "/", case.get("script_path"), "/var/lib/heliostat", "ab12-12.1")
    return payload_script(attempt, person, places)


def load(name: str) -> dict[str, Any]:
    case: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    return case


def test_there_are_cases() -> None:
    assert len(NAMES) >= 8


@pytest.mark.parametrize("name", NAMES)
def test_the_script_is_exactly_this(name: str) -> None:
    expected = CASES / f"{name}.sh"
    made = script_of(load(name)).encode()
    if os.environ.get("UPDATE_CASES"):
        expected.write_bytes(made)
    assert made == expected.read_bytes()


@pytest.mark.parametrize("name", [name for name in NAMES if "script_path" not in load(name)])
def test_every_shell_passes_on_the_words_and_the_environment_untouched(name: str, tmp_path: Path) -> None:
    case = load(name)
    if case.get("workdir"):
        case["workdir"] = str(tmp_path / case["workdir"].lstrip("/"))
        Path(case["workdir"]).mkdir(parents=True)
    told = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    script = tmp_path / "script.sh"
    script.write_text(script_of(case | {"command": ["python3", "-c", told, *case["command"]]}), encoding="utf-8")
    for program, *options in SHELLS:
        if path := shutil.which(program):
            command = [path, *options, str(script)]
            done = subprocess.run(command, env={"PATH": "/no"}, capture_output=True, cwd="/", check=True)
            words, environment = json.loads(done.stdout)
            assert words == case["command"]
            assert environment["PWD"] == case.get("workdir", "/")
            assert case.get("env", {}).items() <= environment.items()
            assert environment["HELIOSTAT_JOB_NAME"] == case.get("name", "train")
            assert done.stderr == b""
