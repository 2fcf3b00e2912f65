"""What a build has left is in a folder of somebody who may swap it: only what is really theirs is taken over."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from heliostat.config import Home, Settings
from heliostat.controller.environment_installation import install_build_result
from heliostat.controller.failure_details import read_untrusted_text
from heliostat.models import AttemptEnded, EndCause, Job, JobSpec, JobState, Resources
from heliostat.models.environments import ENVIRONMENT_BUILD_JOB
from support.fake_engines import FilesEngine

NOW = datetime(2026, 3, 1, tzinfo=UTC)
JOB = Job(
    7, ENVIRONMENT_BUILD_JOB, "b", JobState.RUNNING, "u", "u", "p", Resources(), JobSpec(("x",)), NOW, attempt=1
)
DONE = AttemptEnded("7.1", NOW, EndCause.EXITED, 0)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "jobs" / "7" / "work" / "room").mkdir(parents=True)
    (tmp_path / "environments").mkdir()
    return Settings(Home(tmp_path))


def settled(settings: Settings) -> AttemptEnded:
    return install_build_result(settings, FilesEngine(settings.home.path), replace(JOB, environment="ab"), DONE)


def room(settings: Settings) -> Path:
    return settings.home.jobs / "7" / "work" / "room"


def test_what_is_there_is_taken_over_once(settings: Settings) -> None:
    (room(settings) / "env" / "bin").mkdir(parents=True)
    assert settled(settings) == DONE
    assert (settings.home.environments / "ready" / "ab" / "bin").is_dir()
    assert settled(settings) == DONE, "once more, after a crash"


def test_a_server_killed_in_the_middle_goes_on_where_it_was(settings: Settings) -> None:
    (settings.home.environments / "taking" / "ab" / "bin").mkdir(parents=True)
    assert settled(settings) == DONE
    assert (settings.home.environments / "ready" / "ab" / "bin").is_dir()


def test_a_link_to_the_folder_of_somebody_else_leads_nowhere(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "victim" / "env").mkdir(parents=True)
    (tmp_path / "victim" / "lock").write_text("secret")
    room(settings).rmdir()
    room(settings).symlink_to(tmp_path / "victim")
    assert settled(settings).exit_code == 1
    assert (tmp_path / "victim" / "env").is_dir()
    assert read_untrusted_text(str(room(settings).parent), 100, "room", "lock") is None


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("link", "is not a folder"), ("file", "is not a folder"), ("nothing", "the build created no files")],
)
def test_a_result_that_is_not_a_folder_is_refused(
    settings: Settings, tmp_path: Path, kind: str, reason: str
) -> None:
    left = room(settings) / "env"
    if kind == "link":
        left.symlink_to(tmp_path)
    elif kind == "file":
        left.write_text("")
    end = settled(settings)
    assert (end.exit_code, reason in (end.detail or "")) == (1, True)
    assert not os.path.lexists(settings.home.environments / "ready" / "ab")
