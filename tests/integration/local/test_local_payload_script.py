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

from heliostat.engines.job_variables import RunAsUser
from heliostat.engines.local.payload_script import PayloadContext, render_payload_script
from heliostat.models import Attempt, Job, JobSpec, JobState, PlacementRequest, Resources, TaskPlacement

CASES = Path(__file__).parents[2] / "cases" / "payload_script"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))
SHELLS = (["sh"], ["dash"], ["bash", "--posix"], ["busybox", "sh"])  # any of them may be a machine's /bin/sh


def script_of(case: dict[str, Any]) -> str:
    spec = JobSpec(
        tuple(case["command"]),
        case.get("script"),
        case.get("workdir"),
        case.get("env", {}),
        template=case.get("template"),
    )
    job = Job(
        id=12,
        kind="batch",
        name=case.get("name", "train"),
        state=JobState.STARTING,
        user="ann",
        unix_user="ann",
        project=case.get("project", "vision"),
        resources=Resources(2, 4096, case.get("gpus", len(case.get("devices", ())))),
        spec=spec,
        submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
        array_id=case.get("array_id"),
        array_index=case.get("array_index"),
        attempt=1,
        placement=PlacementRequest(len(case.get("tasks", "1"))),
    )
    places = tuple(TaskPlacement("gpu-1", tuple(devices)) for devices in case.get("tasks", ()))
    attempt = Attempt("12.1", job, "gpu-1", tuple(case.get("devices", ())), places)
    person = RunAsUser("ann", 1001, 1001, case.get("home", "/home/ann"), "/bin/bash")
    at_hand = PayloadContext(
        workdir=case.get("workdir") or "/",
        script_path=case.get("script_path"),
        installation_folder="/var/lib/heliostat",
        process_mark="ab12-12.1",
        checkpoint_folder="/var/lib/heliostat/jobs/12/checkpoints",
        device_memory_mib=81920,
        rendezvous_port=20012,
    )
    return render_payload_script(attempt, person, at_hand)


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


@pytest.mark.parametrize("name", [name for name in NAMES if not {"script_path", "tasks"} & load(name).keys()])
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


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_every_shell_runs_tasks_side_by_side_and_ends_with_the_first_failure(
    shell: list[str], tmp_path: Path
) -> None:
    if not (path := shutil.which(shell[0])):
        pytest.skip(f"no {shell[0]} here")
    says = 'echo "$RANK of $WORLD_SIZE on $CUDA_VISIBLE_DEVICES"; : > "$0/$RANK"'
    fails = 'while ! [ -e "$0/0" ] || ! [ -e "$0/2" ]; do sleep 0.01; done; exit 9'
    line = f'{says}; if [ "$RANK" = 1 ]; then {fails}; fi; exec sleep 600'
    case = {"command": ["sh", "-c", line, str(tmp_path)], "tasks": [["GPU-a"], ["GPU-b", "GPU-c"], []]}
    script = tmp_path / "script.sh"
    script.write_text(script_of(case), encoding="utf-8")
    command = [path, *shell[1:], str(script)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", timeout=120)
    assert done.returncode == 9
    assert sorted(done.stdout.splitlines()) == ["0 of 3 on GPU-a", "1 of 3 on GPU-b,GPU-c", "2 of 3 on "]
    assert done.stderr == ""
