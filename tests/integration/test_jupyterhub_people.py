"""People on a hub whose servers are jobs: each has their own, as themselves, and nobody can pass for it."""

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.running_server import RunningServer
from integration.unix_users import Person, needs_root
from support.jupyterhub_process import VENV, HubBrowser, JupyterHubProcess, jupyterhub_skip_reason

PASSWORD = "a long secret of mine"
# A web server that any user of the machine may run: JupyterHub's own may be closed to them.
STAND_IN = """
import http.server, os, pwd, urllib.parse
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{pwd.getpwuid(os.getuid()).pw_name} {os.environ['JUPYTERHUB_USER']}".encode())
address = urllib.parse.urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
http.server.ThreadingHTTPServer((address.hostname, address.port), Page).serve_forever()
"""

pytestmark = [
    pytest.mark.skipif(bool(jupyterhub_skip_reason()), reason=jupyterhub_skip_reason()),
    pytest.mark.timeout(500),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer()
    yield server
    server.remove()


def start(hub: JupyterHubProcess, name: str) -> HubBrowser:
    visitor = HubBrowser(hub)
    visitor.log_in(name, PASSWORD)
    assert visitor.call("POST", f"/hub/api/users/{name}/server", {"cpus": 1, "memory": "512M"}).status in (
        201,
        202,
    )
    visitor.wait_until_server(name, lambda server: server.get("ready"), "the server is ready")
    return visitor


@needs_root
def test_each_persons_server_is_their_own_job_under_their_own_user(
    server: RunningServer, ann: Person, bob: Person, tmp_path: Path
) -> None:
    for person in (ann, bob):
        body = {"name": person.name, "unix_user": person.name, "password": PASSWORD, "projects": ["default"]}
        assert server.ask("POST", "/users", body).status == 201
    hub = JupyterHubProcess(tmp_path, server.url, ["/usr/bin/python3", "-c", STAND_IN])
    try:
        visitors = {person.name: start(hub, person.name) for person in (ann, bob)}
        for name, visitor in visitors.items():
            assert visitor.get(f"/user/{name}/").text == f"{name} {name}"
        jobs = server.ask("GET", "/jobs?unfinished=true").json["items"]
        assert {job["user"] for job in jobs} == {ann.name, bob.name}
        tokens = server.ask("GET", f"/tokens?user={ann.name}").json["items"]
        assert [one["name"].partition("@")[0] for one in tokens if one["revoked_at"] is None] == ["jupyterhub"]
        assert visitors[ann.name].call("DELETE", f"/hub/api/users/{bob.name}/server").status in (403, 404)
        assert server.ask("POST", "/jobs/cancel", {"job_ids": [job["id"] for job in jobs]}).status == 200
    finally:
        hub.close()


def test_hub_and_server_know_each_other_by_certificates(server: RunningServer, tmp_path: Path) -> None:
    me = getpass.getuser()
    assert server.ask("PUT", f"/users/{me}/password", {"password": PASSWORD}).status == 204
    command = [str(VENV / "bin" / "jupyterhub-singleuser"), "--allow-root"]
    hub = JupyterHubProcess(tmp_path, server.url, command, is_sealed=True)
    try:
        visitor = start(hub, me)
        assert visitor.get(f"/user/{me}/api/spec.yaml").status == 200
        job = server.ask("GET", f"/jobs?unfinished=true&user={me}").json["items"][0]["id"]
        folder = server.home / "jobs" / str(job) / "checkpoints"
        (certificates,) = folder.glob("jupyterhub-*")
        assert {path.stat().st_mode & 0o777 for path in certificates.iterdir()} == {0o600}
        assert visitor.call("DELETE", f"/hub/api/users/{me}/server").status in (202, 204)
        assert server.finished(job)["state"] == "cancelled"
    finally:
        hub.close()
