"""What a job names as worth another try is tried again in Slurm too, as a job of its own there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.running_server import RunningServer
from integration.unix_users import needs_root
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    yield server
    server.remove()


def test_an_exit_code_that_is_named_is_tried_again_after_its_delay(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "tries"
    command = f'echo try >> {file}; test "$(wc -l < {file})" -ge 2 || exit 75'
    job = server.run(command=command, max_retries=3, retry_on=["exit:75"], retry_delay="1s", workdir="/")
    assert (job["state"], job["attempt"], job["retries"]) == ("completed", 2, 1)
    assert [(one["state"], one["exit_code"]) for one in job["attempts"]] == [("failed", 75), ("completed", 0)]


def test_an_exit_code_that_is_not_named_ends_it(server: RunningServer) -> None:
    job = server.run(command="exit 4", max_retries=3, retry_on=["exit:75"], workdir="/")
    assert (job["state"], job["attempt"]) == ("failed", 1)
