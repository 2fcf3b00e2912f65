"""Environments on Slurm: built through its queue as the one who asks, found on every node by the shared folder."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from integration.running_server import RunningServer
from integration.unix_users import needs_root
from support.package_index import PackageIndex, running_package_index
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root
pytest.importorskip("uv", reason="uv builds environments, and is not installed")
PATIENCE_SECONDS = 150.0


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackageIndex]:
    with running_package_index(tmp_path_factory.mktemp("index")) as index:
        index.add_wheel("tiny", "1.0")
        yield index


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster, index: PackageIndex) -> Iterator[RunningServer]:
    settings = f'server.engine = "slurm"\nenvironments.uv_variables = {{ UV_DEFAULT_INDEX = "{index.url}" }}\n'
    server = RunningServer(settings, {**os.environ, **slurm.env})
    yield server
    server.remove()


def over(server: RunningServer, job_id: int) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        body = {"job_ids": [job_id], "timeout_seconds": 20}
        if server.ask("POST", "/jobs/wait", body).json["finished"]:
            return server.show(job_id)
    raise AssertionError(f"job {job_id} is not over: {server.show(job_id)}\n{server.log}")


def test_a_job_runs_with_its_packages_and_the_next_waits_for_no_build(server: RunningServer) -> None:
    first = over(server, server.submit(command="tiny", cpus=1, environment={"requirements": "tiny"}))
    assert first["state"] == "completed", (first, server.log)
    assert server.output(first["id"]) == "tiny 1.0\n"
    found = server.ask("GET", f"/environments/{first['environment']}").json
    assert (found["state"], found["shared"]) == ("ready", False)
    second = over(server, server.submit(command="tiny", cpus=1, environment={"requirements": "tiny"}))
    assert (second["state"], second["parent_count"]) == ("completed", 0)


def test_a_broken_requirement_ends_the_job_with_the_resolvers_words(server: RunningServer) -> None:
    job = over(server, server.submit(command="tiny", cpus=1, environment={"requirements": "tiny>5"}))
    assert job["state"] == "failed"
    assert job["reason"].startswith("its environment cannot be built: ")


def test_where_containers_are_required_our_own_builds_are_left_alone(
    slurm: SlurmTestCluster, index: PackageIndex
) -> None:
    """A build is a script of ours, which must see the shared folder: only jobs of people are contained."""
    settings = (
        'server.engine = "slurm"\ncontainers.required = true\n'
        f'environments.uv_variables = {{ UV_DEFAULT_INDEX = "{index.url}" }}\n'
    )
    server = RunningServer(settings, {**os.environ, **slurm.env})
    try:
        plain = server.ask("POST", "/jobs", {"command": "tiny", "environment": {"requirements": "tiny"}})
        assert (plain.status, plain.error["fields"]) == (422, {"runtime": "must not be process"})
        wish = {"runtime": "bubblewrap", "environment": {"requirements": "tiny"}}
        job = over(server, server.submit(command="tiny", cpus=1, **wish))
        assert job["state"] == "completed", (job, server.output(job["id"], stream="stderr"), server.log)
        assert server.output(job["id"]) == "tiny 1.0\n"
        build = server.ask("GET", f"/environments/{job['environment']}").json
        built = server.show(build["build_job"])
        spec = built["spec"]
        assert (built["state"], spec["runtime"], spec["image"]) == ("completed", None, None), built
    finally:
        server.remove()
