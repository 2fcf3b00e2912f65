"""SIGHUP starts the server again with the settings as they are now; jobs go on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from heliostat.client import Client
from heliostat.errors import HeliostatError
from support.waiting import wait_until

HELIO = Path(sys.executable).with_name("helio")
SETTINGS = '[server]\nport = 0\nnode_name = "here"\n'


@dataclass
class Installation:
    home: Path
    client: Client

    def helio(self, *words: str) -> None:
        environ = {**os.environ, "HELIOSTAT_HOME": str(self.home)}
        subprocess.run([HELIO, *words], env=environ, check=True, capture_output=True, timeout=200)

    def started_at(self) -> str:
        try:
            return str(self.client.status()["started_at"])
        except HeliostatError:
            return ""

    def settings_finding(self) -> tuple[str, str]:
        (found,) = (one for one in self.client.doctor() if one["check"] == "settings")
        return found["level"], found["message"]

    def send_hangup(self) -> None:
        os.kill(self.client.status()["pid"], signal.SIGHUP)

    @property
    def log(self) -> str:
        return (self.home / "server.log").read_text()


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "cluster.toml").write_text(SETTINGS)
    with Client(home=home) as client:
        installation = Installation(home, client)
        installation.helio("up", "--background")
        yield installation
        for job in client.jobs.list(unfinished=True):
            client.jobs.cancel(job, force=True)
            client.wait([job], timeout=120)
        installation.helio("down")


def test_a_changed_file_is_reported_and_applied_and_jobs_go_on(installation: Installation) -> None:
    client = installation.client
    job = client.submit(["sleep", "600"], cpus=1, memory=64)
    wait_until(lambda: client.jobs.get(job.id).data["state"] == "running", "the job runs")
    assert installation.settings_finding()[0] == "ok"
    (installation.home / "cluster.toml").write_text(SETTINGS + "[queue]\nmax_grace_seconds = 77\n")
    level, message = installation.settings_finding()
    assert (level, "queue.max_grace_seconds" in message) == ("warning", True)
    before, pid = installation.started_at(), client.status()["pid"]
    installation.send_hangup()
    wait_until(lambda: installation.started_at() not in ("", before), "the server has started again")
    assert installation.settings_finding()[0] == "ok"
    assert client.status()["pid"] == pid
    again = client.jobs.get(job.id).data
    assert (again["state"], again["attempt"]) == ("running", 1)
    assert "changed=queue.max_grace_seconds" in installation.log


def test_a_wrong_file_changes_nothing_and_is_logged(installation: Installation) -> None:
    before = installation.started_at()
    (installation.home / "cluster.toml").write_text(SETTINGS + "[queue]\nmax_grace_second = 77\n")
    installation.send_hangup()
    wait_until(lambda: "settings_not_reloaded" in installation.log, "the error is in the log")
    level, message = installation.settings_finding()
    assert (level, "max_grace_second" in message) == ("problem", True)
    assert installation.started_at() == before
