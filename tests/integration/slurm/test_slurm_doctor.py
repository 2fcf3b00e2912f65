"""The doctor looks at a real Slurm, from its nodes too."""

import os
from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer
from integration.unix_users import Person, needs_root
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    yield server
    server.remove()


def said(server: RunningServer, method: str) -> str:
    answer = server.ask(method, "/doctor")
    assert answer.status == 200, answer.body
    return "\n".join(
        f"{one['level']} {one['message']}" for one in answer.json["findings"] if one["check"] == "slurm"
    )


def test_a_probe_looks_from_a_node_and_is_remembered(server: RunningServer, two_unix_users: list[Person]) -> None:
    for person in two_unix_users:
        server.ask("GET", "/status", uid=person.uid)  # at first contact they get an account
    assert "Not checked" in said(server, "GET")
    found = said(server, "POST")
    assert (
        f"of partition main can use {server.home}, has the same ids for 3 users, and its clock is right." in found
    )
    assert said(server, "GET") == found
    assert not list(server.home.glob("probe-*"))


def test_only_admins_probe(server: RunningServer, two_unix_users: list[Person]) -> None:
    assert server.ask("POST", "/doctor", uid=two_unix_users[0].uid).status == 403


def test_what_keeps_jobs_within_their_limits_is_looked_at(server: RunningServer) -> None:
    found = said(server, "GET")
    assert "warning Processes of a job can outlive it" in found
    assert "ok Arrays of up to 1001 elements" in found
