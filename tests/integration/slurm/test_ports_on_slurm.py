"""Ports of jobs on the nodes of a real Slurm, through the proxy."""

import hashlib
import os
import socket
from collections.abc import Iterator

import pytest
from websockets import Subprotocol
from websockets.sync.client import connect

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.job_exec import exec_in_job
from support.proxy_browser import ECHO_SERVER, PYTHON, ProxyBrowser, proxy_url, start_echo_job
from support.slurm_cluster import SlurmTestCluster
from support.slurm_job_ports import JobPort, kill_server, relay_pids, run_helio, start_websocket_job

pytestmark = [needs_root, pytest.mark.timeout(300)]
LARGE = 50_000_000


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster, two_unix_users: list[Person]) -> Iterator[RunningServer]:
    for person in two_unix_users:
        slurm.add_user(person.name)
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    yield server
    server.remove()


@pytest.fixture(scope="module")
def ann_job(server: RunningServer, two_unix_users: list[Person]) -> Iterator[tuple[int, int]]:
    job = start_echo_job(server, two_unix_users[0].uid, cpus=1, env={"SLURM_TEST": "1"})
    yield job
    server.ask("POST", f"/jobs/{job[0]}/cancel?force=true")


@pytest.fixture(scope="module")
def bob_job(server: RunningServer, two_unix_users: list[Person]) -> Iterator[tuple[int, int]]:
    job = start_echo_job(server, two_unix_users[1].uid, cpus=1)
    yield job
    server.ask("POST", f"/jobs/{job[0]}/cancel?force=true")


@pytest.fixture
def port(server: RunningServer, ann: Person, ann_job: tuple[int, int]) -> JobPort:
    return JobPort.with_new_key(server, ann_job, ann.uid)


def test_a_server_inside_a_job_answers_through_the_proxy(port: JobPort, ann: Person) -> None:
    got = port.get("a%2Fb/echo?q=1")
    assert (got.status, got.json["target"]) == (200, "/a%2Fb/echo?q=1")
    [relay] = relay_pids(port.server, port.job)
    assert os.stat(f"/proc/{relay}").st_uid == ann.uid
    assert port.get().json["pid"] == got.json["pid"]
    assert relay_pids(port.server, port.job) == [relay]  # the same for all
    folder = port.server.home / "jobs" / str(port.job)
    assert not list(folder.glob("inside-*"))


def test_large_bodies_stream_both_ways(port: JobPort) -> None:
    body = os.urandom(LARGE)
    assert port.send("POST", "echo", body).json["sha"] == hashlib.sha256(body).hexdigest()
    got = port.get(f"big?size={LARGE}")
    assert (got.status, len(got.body), set(got.body)) == (200, LARGE // 65536 * 65536, {ord("x")})


def test_a_slow_reader_does_not_hold_up_the_others(port: JobPort) -> None:
    with ProxyBrowser(port.server).open_response(
        "GET", port.url(f"big?size={LARGE}"), headers=port.headers
    ) as slow:
        assert slow.read(1) == b"x"
        for _ in range(3):
            assert port.get().status == 200
        assert len(slow.read()) == LARGE // 65536 * 65536 - 1


def test_a_server_that_answers_early_and_hangs_up_is_heard(port: JobPort) -> None:
    got = port.send("POST", "hasty", b"x" * 3_000_000)
    assert (got.status, got.body) == (413, b"large")


def test_websockets_go_both_ways(server: RunningServer) -> None:
    job = start_websocket_job(server)
    port = JobPort.with_new_key(server, job)
    address, offers = port.url("x").replace("http", "ws", 1), [Subprotocol("v1.kernel")]
    said = dict(port.headers)
    with connect(address, additional_headers=said, max_size=None, subprotocols=offers, open_timeout=60) as channel:
        assert channel.subprotocol == "v1.kernel"
        channel.recv(60)
        for message in ("häy", b"\x00\xff", os.urandom(3_000_000)):
            channel.send(message)
            assert channel.recv(60) == message
    server.ask("POST", f"/jobs/{job[0]}/cancel?force=true")


def test_nobody_reaches_a_port_of_somebody_elses_job(
    server: RunningServer, ann: Person, bob: Person, ann_job: tuple[int, int], bob_job: tuple[int, int]
) -> None:
    job, number = ann_job
    for uid in (bob.uid, None):
        assert server.ask("GET", f"/jobs/{job}/ports/{number}", uid=uid).status == 403
    key = JobPort.with_new_key(server, bob_job, bob.uid).headers
    url = f"{proxy_url(server)}/s/{job}-{number}/echo"
    assert ProxyBrowser(server).get(url, headers=key).status == 401
    visitor = ProxyBrowser(server).log_in(bob.uid)
    assert visitor.follow_redirects(url)[1].status == 403


def test_a_port_that_somebody_else_holds_on_the_node_is_refused(
    server: RunningServer, ann: Person, bob: Person, ann_job: tuple[int, int], bob_job: tuple[int, int]
) -> None:
    """All nodes of these tests are one machine, so bob's relay sees what ann's job listens on."""
    for method, more in (("GET", ""), ("POST", "/key")):
        path = f"/jobs/{bob_job[0]}/ports/{ann_job[1]}{more}"
        answer = server.ask(method, path, {} if more else None, uid=bob.uid)
        assert (answer.status, answer.error["code"]) == (409, "not_listening")
        assert "not part of the job" in answer.error["message"]


def test_a_port_that_a_job_has_left_and_somebody_else_has_taken_is_refused(
    server: RunningServer, ann: Person
) -> None:
    script = ECHO_SERVER.read_text()
    lines = f"""{PYTHON} -c "$1" port & echo; while [ ! -e go ]; do sleep 0.1; done; kill $!; exec sleep 600"""
    job = server.submit(ann.uid, command=["sh", "-c", lines, "sh", script], cpus=1)
    work = server.home / "jobs" / str(job) / "work"
    wait_for((work / "port").exists, "its server listens", lambda: server.output(job, ann.uid, "stderr"))
    wait_for(lambda: server.show(job, ann.uid)["state"] == "running", "it is known to run")
    port = JobPort.with_new_key(server, (job, int((work / "port").read_text())), ann.uid)
    assert port.get().status == 200
    (work / "go").touch()
    wait_for(lambda: port.get().status == 409, "it listens no more")
    with socket.create_server(("127.0.0.1", port.number)):
        got = port.get()
        assert (got.status, b"not part of the job" in got.body) == (409, True)
    server.ask("POST", f"/jobs/{job}/cancel?force=true", uid=ann.uid)


def test_neither_another_job_of_ones_own_nor_a_server_outside_of_it_is_reached(
    server: RunningServer, ann: Person, ann_job: tuple[int, int]
) -> None:
    other = start_echo_job(server, ann.uid, cpus=1)
    assert server.ask("GET", f"/jobs/{other[0]}/ports/{other[1]}", uid=ann.uid).status == 200
    for asked in ((other[0], ann_job[1]), (ann_job[0], other[1])):
        answer = server.ask("GET", f"/jobs/{asked[0]}/ports/{asked[1]}", uid=ann.uid)
        assert (answer.status, answer.error["code"]) == (409, "not_listening"), asked
    with socket.create_server(("127.0.0.1", 0)) as listener:
        roots = listener.getsockname()[1]
        answer = server.ask("GET", f"/jobs/{other[0]}/ports/{roots}", uid=ann.uid)
        assert (answer.status, "not part of the job" in answer.error["message"]) == (409, True)
    server.ask("POST", f"/jobs/{other[0]}/cancel?force=true", uid=ann.uid)


def test_where_nothing_listens_it_says_so(server: RunningServer, ann: Person, ann_job: tuple[int, int]) -> None:
    answer = server.ask("GET", f"/jobs/{ann_job[0]}/ports/{_unused()}", uid=ann.uid)
    assert (answer.status, "no process listens" in answer.error["message"]) == (409, True)
    assert "Start a server in the job first" in answer.error["hint"]


def test_a_relay_that_is_killed_is_started_anew(port: JobPort) -> None:
    assert port.get().status == 200
    [before] = relay_pids(port.server, port.job)
    os.kill(before, 9)
    wait_for(lambda: port.get().status == 200, "another one is there")
    assert relay_pids(port.server, port.job) != [before]


def test_after_a_restart_of_the_server_it_goes_on_and_nothing_is_left_of_the_old_relay(port: JobPort) -> None:
    inside = port.get().json["pid"]
    before = relay_pids(port.server, port.job)
    kill_server(port.server)
    port.server.start()
    wait_for(lambda: port.get().status == 200, "it is found again", lambda: port.get().body)
    assert port.get().json["pid"] == inside
    wait_for(lambda: not set(before) & set(relay_pids(port.server, port.job)), "the old one has left")
    assert len(relay_pids(port.server, port.job)) == 1


def test_a_job_that_ends_takes_its_relay_along(server: RunningServer, ann: Person) -> None:
    job = start_echo_job(server, ann.uid, cpus=1)
    port = JobPort.with_new_key(server, job, ann.uid)
    assert port.get().status == 200
    server.ask("POST", f"/jobs/{job[0]}/cancel", uid=ann.uid)
    assert server.finished(job[0], ann.uid)["state"] == "cancelled"
    wait_for(lambda: not relay_pids(server, job[0]), "the relay has gone")
    wait_for(lambda: port.get().status == 409, "the way is gone")


def test_an_element_of_an_array_is_entered_and_its_port_is_reached(server: RunningServer, ann: Person) -> None:
    body = {"script": f"#!{PYTHON}\n{ECHO_SERVER.read_text()}", "command": ["port"], "array": "0-1", "cpus": 1}
    first, second = server.ask("POST", "/jobs", body, uid=ann.uid).json["job_ids"]
    found = []
    for job in (first, second):
        file = server.home / "jobs" / str(job) / "work" / "port"
        wait_for(file.exists, "the server inside the job listens", lambda job=job: server.show(job, ann.uid))
        wait_for(lambda job=job: server.show(job, ann.uid)["state"] == "running", "it is known to run")
        assert exec_in_job(server, job, "sh", "-c", "echo $HELIOSTAT_JOB_ID", uid=ann.uid).stdout == f"{job}\n"
        found.append(int(file.read_text()))
        assert JobPort.with_new_key(server, (job, found[-1]), ann.uid).get().status == 200
    answer = server.ask("GET", f"/jobs/{first}/ports/{found[1]}", uid=ann.uid)
    assert (answer.status, answer.error["code"]) == (409, "not_listening")
    for job in (first, second):
        server.ask("POST", f"/jobs/{job}/cancel?force=true", uid=ann.uid)


def test_the_command_opens_a_port(server: RunningServer) -> None:
    job = start_echo_job(server, cpus=1)
    ran = run_helio(server, "port", str(job[0]), str(job[1]), "--json")
    assert (ran.returncode, f"/s/{job[0]}-{job[1]}/" in ran.stdout) == (0, True), ran.stderr
    refused = run_helio(server, "port", str(job[0]), str(_unused()))
    assert (refused.returncode != 0, "no process listens" in refused.stderr) == (True, True)
    server.ask("POST", f"/jobs/{job[0]}/cancel?force=true")


def _unused() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number
