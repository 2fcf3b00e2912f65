from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.server_process import ServerProcess


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.chaos)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts a server; whatever becomes of the test, nothing of it is left."""
    begun: list[ServerProcess] = []

    def start(home: Path = tmp_path / "home", **settings: Any) -> ServerProcess:
        begun.append(ServerProcess(home, **settings))
        return begun[-1].start()

    yield start
    for server in begun:
        server.tear_down()


@pytest.fixture
def server(serve: Callable[..., ServerProcess]) -> ServerProcess:
    """Four made-up GPUs and cpus for eight jobs."""
    return serve(cpus=8)
