"""A real JupyterHub whose single-user servers are jobs: started, used, found again, ended."""

import getpass
import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from integration.running_server import RunningServer, wait_for
from support.jupyterhub_process import VENV, HubBrowser, JupyterHubProcess, jupyterhub_skip_reason

PATIENCE_SECONDS = 150.0
ME, PASSWORD = getpass.getuser(), "a long secret of mine"
SINGLEUSER = str(VENV / "bin" / "jupyterhub-singleuser")

pytestmark = [
    pytest.mark.skipif(bool(jupyterhub_skip_reason()), reason=jupyterhub_skip_reason()),
    pytest.mark.timeout(500),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer('server.simulate_gpus = "2xA100"\nserver.node_name = "here"\n')
    assert server.ask("PUT", f"/users/{ME}/password", {"password": PASSWORD}).status == 204
    yield server
    server.remove()


@pytest.fixture(scope="module")
def hub(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterHubProcess]:
    address = f"unix:{server.home}/heliostat.sock"  # which stays the same over a restart
    hub = JupyterHubProcess(tmp_path_factory.mktemp("hub"), address, [SINGLEUSER, "--allow-root"])
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def me(hub: JupyterHubProcess) -> HubBrowser:
    visitor = HubBrowser(hub)
    came = visitor.log_in(ME, PASSWORD)
    assert came.url.startswith(f"{hub.url}/hub/"), came.text[-2000:]
    return visitor


@pytest.fixture(scope="module")
def running(hub: JupyterHubProcess, me: HubBrowser, server: RunningServer) -> int:
    """The number of the job that is my server."""
    me.post_form("/hub/spawn", gpus="1", cpus="1", memory="1G", time="1h")
    until_ready(me)
    return job_of(server)


def until_ready(me: HubBrowser) -> None:
    me.wait_until_server(ME, lambda server: server.get("ready"), "my server is ready")


def until_gone(me: HubBrowser) -> None:
    me.wait_until_server(ME, lambda server: not server, "the hub knows that it is over")


def job_of(server: RunningServer) -> int:
    items = server.ask("GET", "/jobs?unfinished=true").json["items"]
    (mine,) = [job["id"] for job in items if job["name"].startswith("jupyterhub-")]
    number: int = mine
    return number


def test_it_is_a_job_of_its_user_with_what_they_asked_for(running: int, server: RunningServer) -> None:
    job = server.show(running)
    assert (job["user"], job["gpus"], job["cpus"], job["time_limit_seconds"]) == (ME, 1, 1, 3600)


def test_its_page_answers_through_the_hub_and_to_nobody_else(
    running: int, hub: JupyterHubProcess, me: HubBrowser
) -> None:
    page = me.get(f"/user/{ME}/api/spec.yaml")
    assert (page.status, page.url) == (200, f"{hub.url}/user/{ME}/api/spec.yaml"), page.text[-1500:]
    stranger = HubBrowser(hub).get(f"/user/{ME}/api/spec.yaml")
    assert "/hub/login" in stranger.url or stranger.status == 403


def test_a_kernel_runs_there(running: int, hub: JupyterHubProcess, me: HubBrowser) -> None:
    assert run(hub, me, "import os; print(1 + 1, os.environ['HELIOSTAT_JOB_ID'])") == f"2 {running}\n"


def test_its_kernels_have_sockets_that_nobody_else_can_reach(
    running: int, hub: JupyterHubProcess, me: HubBrowser
) -> None:
    code = "import ipykernel; told = ipykernel.get_connection_info(unpack=True); print(told['transport'], end='')"
    assert run(hub, me, code) == "ipc"


def test_secrets_of_the_hub_are_on_no_command_line(
    running: int, me: HubBrowser, server: RunningServer, hub: JupyterHubProcess
) -> None:
    secret = run(hub, me, "import os; print(os.environ['JUPYTERHUB_API_TOKEN'])").strip()
    assert len(secret) > 20
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if secret.encode() in _bytes(path)]
    assert secret not in server.output(running) + server.output(running, stream="stderr")


def test_a_hub_that_was_killed_finds_it_again(
    running: int, hub: JupyterHubProcess, me: HubBrowser, server: RunningServer
) -> None:
    hub.kill()
    hub.start()
    until_ready(me)
    assert job_of(server) == running
    assert run(hub, me, "print('still here')") == "still here\n"


def test_it_outlives_a_heliostat_that_was_killed(
    running: int, hub: JupyterHubProcess, me: HubBrowser, server: RunningServer
) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()
    wait_for(lambda: f"The state of job {running} is unknown" in hub.log, "the hub misses it", lambda: hub.log)
    server.start()
    assert run(hub, me, "print('me too')") == "me too\n"
    assert (job_of(server), me.get_server(ME)["ready"]) == (running, True)


def test_stopping_it_ends_the_job(
    running: int, hub: JupyterHubProcess, me: HubBrowser, server: RunningServer
) -> None:
    assert me.call("DELETE", f"/hub/api/users/{ME}/server").status in (202, 204)
    assert server.finished(running)["state"] == "cancelled"
    until_gone(me)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"gpus": "many"}, "gpus must be a number, at least 0."),
        ({"image": "mine"}, "image cannot be chosen on this hub."),
        ({"environment": "/etc/shadow"}, "environment does not exist on this hub."),
        ({"time": "for ever"}, "time_limit"),
        ({"project": "another's"}, "another's"),
        ({"gpus": 64}, "64 GPUs"),
    ],
)
def test_what_cannot_be_had_is_refused_in_words(
    hub: JupyterHubProcess, me: HubBrowser, server: RunningServer, asked: dict[str, Any], said: str
) -> None:
    """Also of those who send no form. After the last one has stopped."""
    before = server.jobs()
    told = me.call("POST", f"/hub/api/users/{ME}/server", asked)
    assert (told.status >= 400, said in told.json["message"]) == (True, True), told.text
    until_gone(me)
    assert server.jobs() == before


def test_the_form_is_shown_again_with_what_is_wrong(me: HubBrowser) -> None:
    assert 'name="gpus"' in me.get("/hub/spawn").text
    page = me.post_form("/hub/spawn", gpus="many")
    assert "gpus must be a number" in page.text


def test_who_has_no_account_is_not_let_in(hub: JupyterHubProcess) -> None:
    assert "Invalid username or password" in HubBrowser(hub).log_in(ME, "a guess of mine").text


def test_one_that_waits_tells_why_and_outlives_the_hub(
    hub: JupyterHubProcess, me: HubBrowser, server: RunningServer
) -> None:
    holder = server.submit(command=["sleep", "600"], gpus=2, cpus=1, memory=64, time_limit="1h")
    wait_for(lambda: server.show(holder)["state"] == "running", "the GPUs are taken")
    assert me.call("POST", f"/hub/api/users/{ME}/server", {"gpus": 1, "cpus": 1, "memory": "1G"}).status == 202
    said = next(
        one["message"]
        for one in me.stream_events(f"/hub/api/users/{ME}/server/progress")
        if "GPU" in one["message"]
    )
    assert said.startswith(f"Job {job_of(server)} is waiting. ")
    waiting = job_of(server)
    hub.kill()
    hub.start()
    server.ask("POST", f"/jobs/{holder}/cancel")
    until_ready(me)
    assert job_of(server) == waiting
    assert run(hub, me, "print(6 * 7)") == "42\n"
    server.ask("POST", f"/jobs/{waiting}/cancel")
    until_gone(me)


def run(hub: JupyterHubProcess, me: HubBrowser, code: str) -> str:
    """What a kernel of my server prints."""
    made = me.call("POST", f"/hub/api/users/{ME}/tokens", {"note": "a kernel"})
    token = {"Authorization": f"token {made.json['token']}"}
    kernel = me.call("POST", f"/user/{ME}/api/kernels", {"name": "python3"}, **token)
    assert kernel.status == 201, kernel.text[-1500:]
    address = f"{hub.url}/user/{ME}/api/kernels/{kernel.json['id']}/channels".replace("http", "ws", 1)
    with connect(address, additional_headers=token, open_timeout=120) as channel:
        channel.send(json.dumps(_execute(code)))
        return _printed(channel)


def _execute(code: str) -> dict[str, Any]:
    said = {"msg_id": uuid.uuid4().hex, "session": uuid.uuid4().hex, "msg_type": "execute_request"}
    header = {**said, "username": "", "version": "5.3", "date": ""}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    return {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}


def _printed(channel: Any) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        message = json.loads(channel.recv(timeout=PATIENCE_SECONDS))
        if message["msg_type"] in ("stream", "error"):
            return str(message["content"].get("text") or message["content"])
    raise AssertionError("the kernel printed nothing")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
