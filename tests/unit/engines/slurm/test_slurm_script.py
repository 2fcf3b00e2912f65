"""Golden cases: what a job asks for in NAME.json, the exact words of sbatch and its script in NAME.txt.

After a change that is meant, UPDATE_CASES=1 writes them anew; read the difference.
"""

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from heliostat.engines.job_variables import AttemptContext, RunAsUser
from heliostat.engines.slurm.batch_script import AttemptPaths, SubmissionContext, render_batch_script, sbatch_argv
from heliostat.engines.slurm.journal import ALREADY_STARTED_EXIT_CODE
from heliostat.engines.slurm.mapping import UnsupportedRequest
from heliostat.models import Attempt, Job, JobSpec, JobState, PlacementRequest, Resources, TaskLayout

CASES = Path(__file__).parents[3] / "cases" / "slurm"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))
ANN = RunAsUser("ann", 1001, 1001, "/home/ann", "/bin/bash")
AROUND = AttemptContext("/var/lib/heliostat", "ab12-12.1", "/var/lib/heliostat/jobs/12/checkpoints")


def load(name: str) -> dict[str, Any]:
    case: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    return case


def attempt_of(case: dict[str, Any]) -> Attempt:
    placement = case.get("placement", {})
    job = Job(
        id=12,
        kind="batch",
        name=case.get("name", "train"),
        state=JobState.PENDING,
        user="ann",
        unix_user="ann",
        project=case.get("project", "vision"),
        resources=Resources(2, 4096, case.get("gpus", 0), case.get("gpu_type")),
        spec=JobSpec(tuple(case["command"]), None, None, case.get("env", {}), template=case.get("template")),
        submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
        time_limit_seconds=case.get("time_limit_seconds"),
        placement=PlacementRequest(
            placement.get("tasks", 1),
            TaskLayout(placement.get("layout", "pack")),
            placement.get("exclusive", False),
            tuple(placement.get("labels", ())),
        ),
        priority_class=case.get("priority_class", "normal"),
        overtime=case.get("overtime", False),
        attempt=1,
    )
    return Attempt("12.1", job, "")


def paths_in(folder: str, workdir: str | None = None) -> AttemptPaths:
    return AttemptPaths(
        workdir or "/",
        None,
        f"{folder}/1.stdout",
        f"{folder}/1.stderr",
        f"{folder}/1.receipt",
        f"{folder}/1.tasks",
    )


def test_there_are_cases() -> None:
    assert len(NAMES) >= 6


@pytest.mark.parametrize("name", NAMES)
def test_the_words_and_the_script_are_exactly_these(name: str) -> None:
    case, expected = load(name), CASES / f"{name}.txt"
    attempt, paths = attempt_of(case), paths_in(case.get("folder", "/srv/jobs/12"), case.get("workdir"))
    argv = sbatch_argv(attempt, ANN, paths, SubmissionContext("ab12", runs_as_root=True))
    text = "\n".join(map(repr, argv)) + "\n---\n" + render_batch_script(attempt, ANN, paths, AROUND)
    if os.environ.get("UPDATE_CASES"):
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in NAMES if "placement" not in load(name)])
def test_the_script_passes_on_words_and_environment_untouched(name: str, tmp_path: Path) -> None:
    case = load(name)
    told = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    attempt = attempt_of(case | {"command": ["/usr/bin/env", "python3", "-c", told, *case["command"]]})
    script = render_batch_script(attempt, ANN, paths_in(str(tmp_path)), AROUND)
    (tmp_path / "1.receipt").touch()
    given = {"SLURM_JOB_ID": "77", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(["sh"], input=script.encode(), env=given, capture_output=True, cwd="/", check=True)
    words, environment = json.loads(done.stdout)
    assert words == case["command"]
    assert case.get("env", {}).items() <= environment.items()
    assert (environment["HELIOSTAT_NODE"], environment["HELIOSTAT_JOB_NAME"]) == ("n1", case.get("name", "train"))
    assert (tmp_path / "1.receipt").read_text() == "begun 77 0 n1\nended 77 0 0\n"
    assert done.stderr == b""
    again = subprocess.run(["sh"], input=script.encode(), env=given, capture_output=True, cwd="/", check=False)
    assert (again.returncode, again.stdout, again.stderr) == (ALREADY_STARTED_EXIT_CODE, b"", b"")


def run_as(number: int, folder: Path, **more: str) -> int:
    """What a script with one line of its own ends with."""
    attempt = attempt_of({"command": ["true"]})
    script = render_batch_script(attempt, ANN, paths_in(str(folder)), AROUND)
    given = {"SLURM_JOB_ID": str(number), "SLURMD_NODENAME": "n1", **more}
    return subprocess.run(["sh"], input=script.encode(), env=given, capture_output=True, check=False).returncode


def test_one_that_has_begun_under_another_number_does_not_begin_again(tmp_path: Path) -> None:
    (tmp_path / "1.receipt").write_text("begun 7 0 n1\n")
    assert run_as(77, tmp_path) == ALREADY_STARTED_EXIT_CODE
    assert (tmp_path / "1.receipt").read_text() == "begun 7 0 n1\n"
    assert run_as(7, tmp_path, SLURM_RESTART_COUNT="1") == 0


def test_one_whose_receipt_was_taken_away_does_not_begin(tmp_path: Path) -> None:
    assert run_as(77, tmp_path) == ALREADY_STARTED_EXIT_CODE
    assert not (tmp_path / "1.receipt").exists()


@pytest.mark.parametrize(
    "case",
    [
        {"gpus": 0.5},
        {"gpus": 1, "gpu_type": "a100:4,license:x"},
        {"placement": {"labels": ["fast|slow"]}},
        {"placement": {"labels": ["disk=ssd"]}},
    ],
)
def test_what_slurm_would_read_otherwise_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedRequest):
        sbatch_argv(
            attempt_of({"command": ["true"], **case}),
            ANN,
            paths_in("/j"),
            SubmissionContext("ab12", runs_as_root=True),
        )


def test_without_root_nobody_else_is_named() -> None:
    argv = sbatch_argv(
        attempt_of({"command": ["true"]}), ANN, paths_in("/j"), SubmissionContext("ab12", runs_as_root=False)
    )
    assert not [word for word in argv if word.startswith(("--uid", "--gid"))]


def test_the_account_of_the_project_is_named_where_there_is_one() -> None:
    attempt, site = (
        attempt_of({"command": ["true"]}),
        SubmissionContext("ab12", runs_as_root=True, account="vision"),
    )
    assert "--account=vision" in sbatch_argv(attempt, ANN, paths_in("/j"), site)
