"""Batch notebooks on the nodes of a real Slurm, with a real papermill; one of them out of a session there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.client import Client
from integration.running_server import RunningServer, wait_for
from integration.unix_users import needs_root
from support.notebooks import JUPYTER_LAB, write_notebook
from support.slurm_cluster import SlurmTestCluster

PATIENCE_SECONDS = 400.0

pytestmark = [
    needs_root,
    pytest.mark.skipif(
        not JUPYTER_LAB.with_name("papermill").exists(), reason="no papermill: scripts/install --test brings it"
    ),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    settings = f'server.engine = "slurm"\nsessions.jupyter_command = "{JUPYTER_LAB}"\n'
    server = RunningServer(settings, {**os.environ, **slurm.env})
    yield server
    server.remove()


def test_a_notebook_fails_on_a_node_with_its_reason_and_keeps_its_results(
    server: RunningServer, tmp_path: Path
) -> None:
    path = write_notebook(tmp_path / "bad.ipynb", "x = 1", "print('before', x)", "[][x]")
    with Client(home=server.home) as client:
        job = client.notebooks.run(path, {"x": 5}, cpus=1, memory="1G").wait(PATIENCE_SECONDS)
        assert job.data["reason"] == "cell 4 failed: IndexError: list index out of range"
        assert "before 5" in job.logs("stdout")
        assert [one.name for one in client.files.save_results(job.id, tmp_path / "got")] == [
            "bad.html",
            "bad.ipynb",
        ]


def test_a_notebook_of_a_session_on_a_node_becomes_a_job(server: RunningServer, tmp_path: Path) -> None:
    write_notebook(tmp_path / "mine.ipynb", "import os", "print('in', os.getcwd())")
    with Client(home=server.home) as client:
        session = client.sessions.start("custom", ["sleep", "900"], workdir=str(tmp_path), cpus=1, memory="256M")
        number = session.id
        wait_for(
            lambda: client.jobs.get(number).data["state"] == "running",
            "the session runs",
            seconds=PATIENCE_SECONDS,
        )
        assert client.sessions.list_notebooks(number) == ["mine.ipynb"]
        job = client.notebooks.run("mine.ipynb", session=number, cpus=1, memory="1G").wait(PATIENCE_SECONDS)
        assert (job.data["state"], job.data["reason"]) == ("completed", None)
        assert f"in {os.path.realpath(tmp_path)}\n" in job.logs("stdout")
        client.jobs.cancel(number, force=True)
        client.jobs.get(number).wait(PATIENCE_SECONDS)
