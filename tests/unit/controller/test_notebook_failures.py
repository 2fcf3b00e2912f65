"""Why a notebook failed, as its job has left it."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from heliostat.config import Home
from heliostat.controller.failure_details import add_notebook_failure
from heliostat.models import AttemptEnded, EndCause, Job, JobSpec, JobState, Resources
from support.fake_engines import FilesEngine

NOW = datetime(2026, 11, 16, tzinfo=UTC)
FAILED = AttemptEnded("7.2", NOW, EndCause.EXITED, 1)
JOB = Job(
    id=7,
    kind="batch",
    name="analysis",
    state=JobState.RUNNING,
    user="ann",
    unix_user="ann",
    project="default",
    resources=Resources(),
    spec=JobSpec(),
    submitted_at=NOW,
    attempt=2,
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    (home.jobs / "7" / "checkpoints").mkdir(parents=True)
    return home


def left(home: Home) -> Path:
    return home.jobs / "7" / "checkpoints" / ".notebook-2"


def test_what_it_left_is_its_reason_in_one_line_that_steers_no_terminal(home: Home) -> None:
    left(home).write_text("cell 3 failed:\n\x1b[31mKeyError\x1b[0m: 'x'")
    assert (
        add_notebook_failure(FilesEngine(home.path), JOB, FAILED).detail == "cell 3 failed: [31mKeyError [0m: 'x'"
    )


@pytest.mark.parametrize("seen", [replace(FAILED, exit_code=0), replace(FAILED, cause=EndCause.TIMED_OUT)])
def test_only_one_that_failed_by_itself_has_a_reason_of_its_own(home: Home, seen: AttemptEnded) -> None:
    left(home).write_text("because")
    assert add_notebook_failure(FilesEngine(home.path), JOB, seen) is seen


def test_that_of_another_attempt_or_kind_does_not_count(home: Home) -> None:
    left(home).write_text("because")
    assert add_notebook_failure(FilesEngine(home.path), replace(JOB, attempt=3), FAILED) is FAILED
    assert add_notebook_failure(FilesEngine(home.path), replace(JOB, kind="session"), FAILED) is FAILED


def test_links_and_pipes_are_not_read(home: Home, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    left(home).symlink_to(tmp_path / "secret")
    assert add_notebook_failure(FilesEngine(home.path), JOB, FAILED) is FAILED
    left(home).unlink()
    os.link(tmp_path / "secret", left(home))
    assert add_notebook_failure(FilesEngine(home.path), JOB, FAILED) is FAILED
    left(home).unlink()
    os.mkfifo(left(home))
    assert add_notebook_failure(FilesEngine(home.path), JOB, FAILED) is FAILED
