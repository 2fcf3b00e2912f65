"""A real JupyterLab on a node of a real Slurm that nobody uses is warned and ended; one whose cell runs is not."""

import os
from collections.abc import Iterator

import pytest

from integration.proxy.test_forgotten_sessions import (
    JUPYTER,
    PATIENCE_SECONDS,
    look,
    run_for_ever,
    start,
    warnings,
)
from integration.running_server import RunningServer, wait_for
from integration.unix_users import needs_root
from support.slurm_cluster import SlurmTestCluster

pytestmark = [
    needs_root,
    pytest.mark.skipif(not JUPYTER.exists(), reason="JupyterLab is not there: scripts/install --test brings it"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    settings = f'server.engine = "slurm"\nsessions.jupyter_command = "{JUPYTER}"\nsessions.idle_after = "24s"\n'
    server = RunningServer(settings, {**os.environ, **slurm.env})
    yield server
    server.remove()


def test_a_forgotten_session_ends_after_a_warning_and_one_that_works_does_not(server: RunningServer) -> None:
    busy = start(server, memory="500M")
    run_for_ever(server, busy)
    forgotten = start(server, memory="500M")
    wait_for(lambda: server.show(forgotten)["ended_at"], "it is ended", seconds=PATIENCE_SECONDS)
    ended = server.show(forgotten)
    assert (ended["state"], "it was idle for 24s" in ended["reason"]) == ("cancelled", True)
    assert len(warnings(server, forgotten)) == 1
    assert (server.show(busy)["state"], look(server, busy)["warning"]) == ("running", None)
    server.ask("POST", f"/jobs/{busy}/cancel?force=true")
    server.finished(busy)
