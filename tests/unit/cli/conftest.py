from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from heliostat.cli.main import main
from unit.client.stand_in_server import StandInServer


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _only_this_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOSTAT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HELIOSTAT_RECORD", "0")  # these tests may run in a git repository or not
    for name in ("HELIOSTAT_URL", "HELIOSTAT_TOKEN", "HELIOSTAT_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def helio(capfd: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """Runs a command line in this process."""

    def run(*words: str) -> CommandResult:
        code = main(words)
        out, err = capfd.readouterr()
        return CommandResult(code, out, err)

    return run


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., StandInServer]]:
    """Starts a server under HELIOSTAT_HOME that gives these answers."""
    started: list[StandInServer] = []

    def start(*answers: bytes | None) -> StandInServer:
        started.append(StandInServer(tmp_path / "home", list(answers)))
        return started[-1]

    yield start
    for server in started:
        server.close()
