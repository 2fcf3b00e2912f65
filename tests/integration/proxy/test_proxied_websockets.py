"""WebSockets between a real client and a real server inside a job."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets import Subprotocol
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from integration.running_server import RunningServer, wait_for
from support.proxy_browser import WEBSOCKET_SERVER, ProxyBrowser, proxy_url


@pytest.fixture(scope="module")
def job(server: RunningServer) -> Iterator[tuple[int, int]]:
    job = server.submit(command=[sys.executable, str(WEBSOCKET_SERVER), "port"])
    file = Path(server.home / "jobs" / str(job) / "work" / "port")
    wait_for(file.exists, "the server inside the job listens", lambda: server.output(job, stream="stderr"))
    wait_for(lambda: server.show(job)["state"] == "running", "it is known to run")
    yield job, int(file.read_text())
    server.ask("POST", f"/jobs/{job}/cancel")


@pytest.fixture(scope="module")
def key(server: RunningServer, job: tuple[int, int]) -> str:
    key: str = server.ask("POST", f"/jobs/{job[0]}/ports/{job[1]}/key", {}).json["key"]
    return key


def dial(
    server: RunningServer,
    job: tuple[int, int],
    key: str,
    path: str = "x",
    offers: tuple[str, ...] = ("v1.kernel",),
) -> ClientConnection:
    address = proxy_url(server).replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {key}", "Cookie": "mine=1; helio_session=secret"}
    url = f"{address}/s/{job[0]}-{job[1]}/{path}"
    protocols = [Subprotocol(one) for one in offers]
    return connect(url, additional_headers=headers, max_size=None, subprotocols=protocols, open_timeout=120)


def test_path_and_subprotocol_and_only_foreign_cookies_arrive(
    server: RunningServer, job: tuple[int, int], key: str
) -> None:
    with dial(server, job, key, "a%2Fb?q=%2F", ("v0.kernel", "v1.kernel")) as socket:
        assert socket.subprotocol == "v1.kernel"
        assert socket.recv(120) == "/a%2Fb?q=%2F v1.kernel ['mine=1']"


def test_messages_of_every_size_and_kind_come_back(server: RunningServer, job: tuple[int, int], key: str) -> None:
    with dial(server, job, key) as socket:
        socket.recv(120)
        for message in ("", "häy", b"", b"\x00\xff", os.urandom(3_000_000), "x" * 100_000):
            socket.send(message)
            assert socket.recv(60) == message


def test_the_server_inside_says_how_it_ends(server: RunningServer, job: tuple[int, int], key: str) -> None:
    with dial(server, job, key) as socket:
        socket.recv(120)
        socket.send("bye")
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(120)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4321, "as you wish")


def test_many_talk_at_once(server: RunningServer, job: tuple[int, int], key: str) -> None:
    done: list[int] = []

    def talk(number: int) -> None:
        with dial(server, job, key) as socket:
            socket.recv(60)
            for turn in range(20):
                socket.send(f"{number} {turn}")
                assert socket.recv(60) == f"{number} {turn}"
        done.append(number)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(done) == list(range(10))


def test_a_plain_answer_instead_of_an_upgrade_is_passed_on(
    server: RunningServer, job: tuple[int, int], key: str
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        dial(server, job, "wrong").close()
    assert refused.value.response.status_code == 401
    got = ProxyBrowser(server).get(
        f"{proxy_url(server)}/s/{job[0]}-{job[1]}/x", headers=[("Authorization", f"Bearer {key}")]
    )
    assert got.status == 426


def test_it_ends_when_the_job_does(server: RunningServer) -> None:
    job = server.submit(command=[sys.executable, str(WEBSOCKET_SERVER), "port"])
    file = Path(server.home / "jobs" / str(job) / "work" / "port")
    wait_for(file.exists, "the server inside the job listens")
    wait_for(lambda: server.show(job)["state"] == "running", "it is known to run")
    port = int(file.read_text())
    key = server.ask("POST", f"/jobs/{job}/ports/{port}/key", {}).json["key"]
    with dial(server, (job, port), key) as socket:
        socket.recv(120)
        server.ask("POST", f"/jobs/{job}/cancel?force=true")
        with pytest.raises(ConnectionClosed):
            socket.recv(60)


def test_whoever_talks_while_the_server_is_killed_is_told_and_comes_back_with_the_same_key(
    server: RunningServer, job: tuple[int, int], key: str
) -> None:
    with dial(server, job, key) as socket:
        socket.recv(120)
        os.kill(server.pid, 9)
        server.process.wait(120)
        with pytest.raises(ConnectionClosed):
            socket.recv(120)
    server.start()
    wait_for(lambda: server.show(job[0])["state"] == "running", "its job is found again")
    with dial(server, job, key) as socket:
        socket.recv(120)
        socket.send("still there")
        assert socket.recv(120) == "still there"
