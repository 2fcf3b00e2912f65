"""Which environments go, and what a build that has ended leaves."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from heliostat.config import Home, Settings
from heliostat.controller.environment_installation import install_build_result
from heliostat.models import AttemptEnded, EndCause, Job, JobSpec, JobState, Resources
from heliostat.models.environments import BUILD_FAILURE_PREFIX, Environment, EnvironmentSpec
from heliostat.services.environments.lifecycle import select_unused_environments
from heliostat.store.environments import StoredEnvironment
from support.fake_engines import FilesEngine

NOW = datetime(2026, 11, 1, tzinfo=UTC)
DIGEST = "ab" * 32


def kept(name: str, days: float, size: int, *, needed: bool = False) -> StoredEnvironment:
    used = NOW - timedelta(days=days)
    made = Environment(name, EnvironmentSpec("requirements", ()), "linux", None, "anna", used, 1, None, size, used)
    return StoredEnvironment(made, JobState.COMPLETED, None, needed)


def test_what_was_not_used_for_long_goes_and_what_a_job_needs_stays():
    all_of_them = [kept("old", 100, 1), kept("new", 1, 1), kept("needed", 100, 1, needed=True)]
    assert select_unused_environments(all_of_them, NOW - timedelta(days=90), None) == ["old"]


def test_while_all_are_too_large_what_was_not_used_longest_goes():
    all_of_them = [kept("b", 2, 40), kept("a", 3, 40), kept("c", 1, 40), kept("n", 9, 40, needed=True)]
    assert select_unused_environments(all_of_them, None, 100) == ["a", "b"]
    assert select_unused_environments(all_of_them, None, 160) == []


def test_without_limits_everything_stays():
    assert select_unused_environments([kept("old", 9999, 10**15)], None, None) == []


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for name in ("jobs/7/work/room/env/bin", "environments"):
        (tmp_path / name).mkdir(parents=True)
    return Settings(Home(tmp_path))


def build(**fields: object) -> Job:
    job = Job(7, "build", "b", JobState.RUNNING, "anna", "anna", "p", Resources(), JobSpec(), NOW, attempt=1)
    return replace(job, environment=DIGEST, **fields)  # type: ignore[arg-type]


def settled(settings: Settings, job: Job, end: AttemptEnded) -> AttemptEnded:
    return install_build_result(settings, FilesEngine(settings.home.path), job, end)


def ended(code: int, cause: EndCause = EndCause.EXITED) -> AttemptEnded:
    return AttemptEnded("7.1", NOW, cause, code)


def ready(settings: Settings) -> Path:
    return settings.home.environments / "ready" / DIGEST


def test_a_build_that_completes_is_in_its_place_and_may_be_told_of_twice(settings):
    for _ in range(2):
        assert settled(settings, build(), ended(0)) == ended(0)
        assert (ready(settings) / "bin").is_dir()


def test_a_build_that_was_killed_leaves_nothing(settings):
    assert settled(settings, build(), ended(137, EndCause.STOPPED)) == ended(137, EndCause.STOPPED)
    assert not ready(settings).exists()
    assert not (settings.home.jobs / "7/work/room").exists()


def test_a_build_that_fails_says_its_last_words_without_what_steers_terminals(settings):
    (settings.home.jobs / "7/work/why").write_text("error: no tiny\x1b[2J\n\n  cause:   none\n")
    told = settled(settings, build(), ended(1))
    assert told.detail == f"{BUILD_FAILURE_PREFIX}error: no tiny[2J\ncause: none"


def test_words_behind_a_link_are_not_read(settings):
    secret = settings.home.path / "secret"
    secret.write_text("secret")
    (settings.home.jobs / "7/work/why").symlink_to(secret)
    assert settled(settings, build(), ended(1)).detail == f"{BUILD_FAILURE_PREFIX}exit code 1"


def test_a_link_in_place_of_the_environment_is_not_taken_over(settings):
    made = settings.home.jobs / "7/work/room/env"
    (made / "bin").rmdir()
    made.rmdir()
    made.symlink_to("/etc")
    told = settled(settings, build(), ended(0))
    assert told.exit_code == 1
    assert not ready(settings).is_symlink()


def test_a_build_that_leaves_nothing_has_failed(settings):
    (settings.home.jobs / "7/work/room").rename(settings.home.path / "away")
    assert settled(settings, build(), ended(0)).exit_code == 1


def test_other_jobs_are_none_of_its_business(settings):
    assert settled(settings, build(kind="batch"), ended(1)) == ended(1)
