"""`helio` inside a job, with nothing but Python."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heliostat.config import Home
from heliostat.engines.helio_in_jobs import install_job_programs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    install_job_programs(Home(tmp_path))
    return tmp_path


def helio(home: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin", **environ}
    command = [f"{home}/bin/helio", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_a_metric_is_a_line_in_a_file(home: Path) -> None:
    for words in (("acc", "0.5", "--step", "3"), ("loss", "-1e-3")):
        assert helio(home, "report-metric", *words, HELIOSTAT_CHECKPOINT_DIR=str(home)).returncode == 0
    lines = [json.loads(line) for line in (home / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"name": "acc", "value": 0.5, "step": 3}, {"name": "loss", "value": -0.001}]


def test_a_checkpoint_is_a_touched_file(home: Path) -> None:
    assert helio(home, "checkpointed", HELIOSTAT_CHECKPOINT_FILE=str(home / "saved")).returncode == 0
    assert (home / "saved").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("report-metric", "a b", "1"), "name: must have at most 63 letters"),
        (("report-metric", "a", "nan"), "value: must be a finite number"),
        (("report-metric", "a", "much"), "VALUE is a number"),
        (("report-metric", "a", "1"), "works only inside a job"),
        (("checkpointed",), "works only inside a job"),
    ],
)
def test_a_mistake_is_a_sentence(home: Path, words: tuple[str, ...], says: str) -> None:
    ran = helio(home, *words)
    assert (ran.returncode, says in ran.stderr, "Traceback" in ran.stderr) == (1, True, False), ran.stderr


def test_other_commands_run_with_the_installation_of_the_server(home: Path) -> None:
    assert helio(home, "--version").stdout.startswith("heliostat 0.")
