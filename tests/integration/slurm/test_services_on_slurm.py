"""Services whose replicas run on nodes of a real Slurm: looked at and reached through the relay beside each."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for
from integration.slurm.test_sessions_on_slurm import echo_command
from integration.unix_users import Person, needs_root
from support.proxy_browser import ProxyBrowser
from support.slurm_cluster import SlurmTestCluster

pytestmark = [needs_root, pytest.mark.timeout(400)]
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster, two_unix_users: list[Person]) -> Iterator[RunningServer]:
    for person in two_unix_users:
        slurm.add_user(person.name)
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    yield server
    server.remove()


def look(server: RunningServer, name: str, uid: int) -> Any:
    return server.ask("GET", f"/services/{name}", uid=uid).json


def live(server: RunningServer, name: str, uid: int) -> list[Any]:
    return [one for one in look(server, name, uid)["replica_jobs"] if one["state"] != "over"]


def until_healthy(server: RunningServer, name: str, uid: int, count: int) -> None:
    def is_whole() -> bool:
        return [one["state"] for one in live(server, name, uid)] == ["healthy"] * count

    wait_for(is_whole, "all replicas are healthy", lambda: look(server, name, uid), PATIENCE_SECONDS)


@pytest.fixture
def service(server: RunningServer, ann: Person) -> Iterator[str]:
    wish = {"name": "echo", "command": echo_command(), "cpus": 1, "replicas": 2, "health": {"path": "/echo"}}
    answer = server.ask("POST", "/services", wish, uid=ann.uid)
    assert answer.status == 201, answer.body
    until_healthy(server, "echo", ann.uid, 2)
    yield "echo"
    server.ask("POST", "/services/echo/stop", uid=ann.uid)
    wait_for(lambda: live(server, "echo", ann.uid) == [], "its replicas are gone", seconds=PATIENCE_SECONDS)


def test_a_replica_that_is_killed_is_replaced_and_nobody_notifications(
    server: RunningServer, ann: Person, bob: Person, service: str
) -> None:
    key = server.ask("POST", f"/services/{service}/key", uid=ann.uid).json
    headers = [("Authorization", f"Bearer {key['key']}")]
    ask = ProxyBrowser(server)
    pids = {ask.get(f"{key['url']}echo", headers=headers).json["pid"] for _ in range(20)}
    assert len(pids) == 2, "both answer"
    before = {one["job_id"] for one in live(server, service, ann.uid)}
    os.kill(min(pids), signal.SIGKILL)
    answers = [ask.get(f"{key['url']}echo", headers=headers).status for _ in range(100)]
    assert answers == [200] * 100
    wait_for(
        lambda: {one["job_id"] for one in live(server, service, ann.uid)} != before,
        "there is another replica",
        lambda: look(server, service, ann.uid),
        PATIENCE_SECONDS,
    )
    until_healthy(server, service, ann.uid, 2)
    assert server.ask("POST", f"/services/{service}/key", uid=bob.uid).status in (403, 404)
