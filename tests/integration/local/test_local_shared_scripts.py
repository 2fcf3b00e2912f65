"""Attempts that differ in nothing but their numbers share a script, and find what one of their own would say."""

import os
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from heliostat.config import Home, Settings
from heliostat.engines.environment import Person
from heliostat.engines.folders import JobFolder
from heliostat.engines.local import launch
from heliostat.engines.local.containers import Place
from heliostat.engines.local.script import likeness, payload_script
from heliostat.engines.local.scripts import Script, Scripts
from heliostat.models import Attempt, Job, JobSpec, JobState, Placement, Resources
from heliostat.models import Place as TaskPlace
from heliostat.models.workflows import Part

US = Person("us", os.geteuid(), os.getegid(), "/home/us", "/bin/sh")
NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECRET = 'it\'s $1 "$2" `id` \\ \n ${HOME}'


def an_attempt(number: int, attempt: int = 1, workdir: str | None = None, **fields: object) -> Attempt:
    spec = JobSpec(
        ("sh", "-c", "pwd; env -0"), workdir=workdir, env={"SECRET": SECRET, "HELIOSTAT_PROJECT": "mine"}
    )
    job = Job(number, "batch", "a name", JobState.STARTING, "us", "us", "vision", Resources(), spec, NOW)
    job = replace(job, attempt=attempt, **fields)
    return Attempt(job.attempt_id, job, "gpu-1")


class Site:
    def __init__(self, folder: Path) -> None:
        self.settings = Settings(Home(folder))
        self.settings.home.jobs.mkdir(parents=True)
        self.scripts = Scripts()

    def payload(self, attempt: Attempt) -> launch.Payload:
        around = launch.Site(self.settings, f"mark-{attempt.id}", None, Place(self.settings, "mark"))
        return launch.prepare(attempt, US, self.folder(attempt), around)

    def folder(self, attempt: Attempt) -> JobFolder:
        return JobFolder.of(self.settings.home.jobs, attempt.job.id)

    def script(self, attempt: Attempt) -> Script:
        return launch.make_order(self.payload(attempt), self.folder(attempt), self.scripts).script

    def own(self, attempt: Attempt) -> Script:
        payload = self.payload(attempt)
        return self.scripts.own(payload_script(attempt, US, payload.places))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "home")


def said_by(script: Script, attempt: Attempt, shell: str = "sh") -> set[bytes]:
    job, _, number = attempt.id.partition(".")
    words = f'. /proc/{os.getpid()}/fd/{script.descriptor}; heliostat_payload "$@"'
    done = subprocess.run([shell, "-c", words, "sh", job, number], env={}, capture_output=True, check=True)
    assert done.stderr == b""
    return set(done.stdout.split(b"\0"))


@pytest.mark.parametrize("workdir", [None, "/usr"])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_it_says_to_each_what_its_own_would(site: Site, workdir: str | None, shell: str) -> None:
    attempts = [
        an_attempt(12, workdir=workdir),
        an_attempt(345, workdir=workdir),
        an_attempt(6, 2, workdir=workdir),
    ]
    shared = [site.script(attempt) for attempt in attempts]
    assert len({script.name for script in shared}) == 1
    for attempt in attempts:
        expected = said_by(site.own(attempt), attempt, shell)
        assert said_by(shared[0], attempt, shell) == expected
        assert f"SECRET={SECRET}".encode() in expected
        assert f"HELIOSTAT_ATTEMPT_ID={attempt.id}".encode() in expected


def test_those_that_are_not_alike_have_their_own(site: Site) -> None:
    like = an_attempt(1)
    others = [
        an_attempt(2, name="another"),
        an_attempt(3, project="other"),
        an_attempt(4, resources=Resources(2)),
        an_attempt(5, environment="ab" * 32, kind="build"),
        an_attempt(6, spec=replace(like.job.spec, env={"SECRET": "another"})),
        an_attempt(7, spec=replace(like.job.spec, command=("sh", "-c", "true"))),
        an_attempt(8, workdir="/usr"),
        an_attempt(9, workdir="/bin"),
        replace(an_attempt(10), node="gpu-2"),
    ]
    names = {site.script(attempt).name for attempt in [like, *others]}
    assert len(names) == 1 + len(others)


def test_whose_text_depends_on_more_shares_nothing(site: Site) -> None:
    like = an_attempt(1)
    places = site.payload(like).places
    assert likeness(like, US, places) is not None
    gang = replace(like, places=(TaskPlace("gpu-1", ()), TaskPlace("gpu-1", ())))
    alone = [
        an_attempt(2, array_id=1, array_index=3),
        an_attempt(3, part=Part("workflow", 2, "key")),
        an_attempt(4, spec=replace(like.job.spec, script="true")),
        an_attempt(5, spec=replace(like.job.spec, template="mpi"), placement=Placement(2)),
        an_attempt(6, spec=replace(like.job.spec, runtime="bubblewrap")),
        gang,
    ]
    assert [likeness(attempt, US, places) for attempt in alone] == [None] * len(alone)


def test_it_is_closed_with_the_last_of_them_and_never_given_out_again(site: Site) -> None:
    first, second = site.script(an_attempt(1)), site.script(an_attempt(2))
    assert first is second
    first.leave()
    assert os.fstat(second.descriptor)
    second.leave()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(second.descriptor)
    third = site.script(an_attempt(3))
    assert third.name != first.name
    third.leave()
