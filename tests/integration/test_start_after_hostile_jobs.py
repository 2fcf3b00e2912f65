"""A server starts, whatever the jobs of an earlier server left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.config import Home
from heliostat.engines.local.cgroup_fallback import container_runtime_folder
from heliostat.engines.local.containers import installation_id
from integration.running_server import RunningServer, wait_for
from support.deep_folders import make_deep_folder


@pytest.fixture
def server() -> Iterator[RunningServer]:
    server = RunningServer()
    yield server
    server.remove()


def test_deeply_nested_folders_of_a_container_do_not_stop_the_start(server: RunningServer) -> None:
    job = server.run(command=["true"], memory=64)["id"]
    server.stop()
    scratch = server.home / "jobs" / str(job) / "1.container"
    runtime = Path(container_runtime_folder(installation_id(Home(server.home)))) / f"{job}.1"
    make_deep_folder(scratch)
    make_deep_folder(runtime)
    server.start()
    wait_for(lambda: not scratch.exists() and not runtime.exists(), "both folders to be gone", lambda: server.log)
