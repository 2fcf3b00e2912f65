from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from unit.client.stand_in_server import StandInServer


@pytest.fixture(autouse=True)
def _without_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests may run in a git repository or not."""
    monkeypatch.setenv("HELIOSTAT_RECORD", "0")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., StandInServer]]:
    """Starts a server under tmp_path that gives these answers."""
    started: list[StandInServer] = []

    def start(*answers: bytes | None, home: Path = tmp_path) -> StandInServer:
        started.append(StandInServer(home, list(answers)))
        return started[-1]

    yield start
    for server in started:
        server.close()
