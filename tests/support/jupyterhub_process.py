"""A real JupyterHub whose servers are jobs, and somebody with a browser who uses it."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv" / "jupyterhub"
PYTHON = VENV / "bin" / "python"
PROXY = VENV / "npm" / "node_modules" / ".bin" / "configurable-http-proxy"
START_SECONDS = WAIT_TIMEOUT_SECONDS = 150.0
_CONFIG = """
from heliostat.integrations.jupyterhub import HeliostatSpawner
from heliostat.integrations.jupyterhub_login import HeliostatAuthenticator
c.JupyterHub.spawner_class = HeliostatSpawner
c.JupyterHub.authenticator_class = HeliostatAuthenticator
c.JupyterHub.bind_url = "http://127.0.0.1:{public}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{inner}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.ConfigurableHTTPProxy.command = ["{proxy}"]
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.auth_token = "secret-of-this-test"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.init_spawners_timeout = 1
c.HeliostatSpawner.heliostat_url = c.HeliostatAuthenticator.heliostat_url = "{heliostat}"
c.HeliostatSpawner.cmd = {command}
c.HeliostatSpawner.poll_interval = 1
{more}
"""
_SEALED = """
c.JupyterHub.internal_ssl = True
c.ConfigurableHTTPProxy.should_start = True
c.ConfigurableHTTPProxy.api_url = c.ConfigurableHTTPProxy.api_url.replace("http:", "https:")
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_bind_url.replace("http:", "https:")
"""


class JupyterHubProcess:
    """Hub and proxy are processes of their own, so that one can be killed without the other.

    One that `is_sealed` speaks TLS with its servers, by certificates it makes; its proxy it starts itself.
    """

    def __init__(self, folder: Path, heliostat: str, command: Sequence[str], is_sealed: bool = False) -> None:
        self.folder = folder
        public, inner, api = _free_ports(3)
        self.url = f"http://127.0.0.1:{public}"
        words = {"public": public, "inner": inner, "api": api, "proxy": PROXY, "heliostat": heliostat}
        text = _CONFIG.format(**words, command=list(command), more=_SEALED if is_sealed else "")
        (folder / "jupyterhub_config.py").write_text(text)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "JUPYTERHUB_CRYPT_KEY": "ab" * 32,
            "CONFIGPROXY_AUTH_TOKEN": "secret-of-this-test",
        }
        where = ["--ip", "127.0.0.1", "--port", str(public), "--api-ip", "127.0.0.1", "--api-port", str(api)]
        alone = [str(PROXY), *where, "--default-target", f"http://127.0.0.1:{inner}"]
        self._proxy = None if is_sealed else self._run(alone)
        self.start()

    def start(self) -> None:
        self._hub = self._run([str(PYTHON), "-m", "jupyterhub", "-f", "jupyterhub_config.py"])
        try:
            self._until_it_answers()
        except BaseException:
            self.close()
            raise

    def kill(self) -> None:
        self._hub.kill()
        self._hub.wait()

    def close(self) -> None:
        self.kill()
        if self._proxy is not None:
            self._proxy.kill()
            self._proxy.wait()
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.folder / "jupyterhub-proxy.pid").read_text().split()[0]), signal.SIGKILL)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-6000:]

    def _run(self, command: list[str]) -> "subprocess.Popen[bytes]":
        with open(self.folder / ("proxy.log" if command[0] == str(PROXY) else "log"), "ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=self._environment, stdout=log, stderr=log)

    def _until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while HubBrowser(self).get("/hub/health").status != 200:
            assert self._hub.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.3)


@dataclass(frozen=True)
class HubResponse:
    status: int
    url: str
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HubBrowser:
    """Keeps cookies, follows redirects, and shows what the hub wants to see on forms."""

    def __init__(self, hub: JupyterHubProcess) -> None:
        self._hub, self._jar = hub, CookieJar()
        self._opener = build_opener(HTTPCookieProcessor(self._jar))

    def get(self, path: str, **headers: str) -> HubResponse:
        return self._send(Request(self._hub.url + path, headers=headers))

    def log_in(self, name: str, password: str) -> HubResponse:
        self.get("/hub/login")
        return self.post_form("/hub/login", username=name, password=password)

    def post_form(self, path: str, **fields: str) -> HubResponse:
        data = urlencode({**fields, "_xsrf": self._xsrf}).encode()
        return self._send(Request(self._hub.url + path, data, headers={"Sec-Fetch-Mode": "navigate"}))

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> HubResponse:
        """As the hub's own pages do it, or with a token."""
        data = None if body is None else json.dumps(body).encode()
        sent = {
            "X-XSRFToken": self._xsrf,
            "Content-Type": "application/json",
            "Referer": self._hub.url + "/hub/home",
        }
        return self._send(Request(self._hub.url + path, data, {**sent, **headers}, method=method))

    def get_server(self, name: str) -> dict[str, Any]:
        """What the hub says of that person's; empty: they have none."""
        found: dict[str, Any] = self.call("GET", f"/hub/api/users/{name}").json["servers"].get("") or {}
        return found

    def wait_until_server(self, name: str, condition: Callable[[dict[str, Any]], object], what: str) -> None:
        """Asked now and then only: a hub answers slowly."""
        deadline = time.monotonic() + WAIT_TIMEOUT_SECONDS
        while not condition(self.get_server(name)):
            assert time.monotonic() < deadline, f"waited in vain until {what}: {self._hub.log}"
            time.sleep(0.3)

    def stream_events(self, path: str) -> Iterator[dict[str, Any]]:
        """Server-sent ones, as they come."""
        with self._opener.open(Request(self._hub.url + path), timeout=120) as answer:
            for line in answer:
                if line.startswith(b"data:"):
                    yield json.loads(line[5:])

    @property
    def _xsrf(self) -> str:
        ours = (one.value or "" for one in self._jar if one.name == "_xsrf" and one.path in ("/", "/hub/"))
        return next(ours, "")

    def _send(self, request: Request) -> HubResponse:
        try:
            with self._opener.open(request, timeout=120) as answer:
                return HubResponse(answer.status, answer.url, answer.read())
        except HTTPError as error:
            with error:
                return HubResponse(error.code, error.url or "", error.read())
        except OSError as error:
            return HubResponse(0, "", str(error).encode())


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def jupyterhub_skip_reason() -> str:
    """Why there can be no hub here; empty: there can."""
    if not PYTHON.exists():
        return "JupyterHub is not installed: scripts/install --test does it"
    if shutil.which("node") is None or not PROXY.exists():
        return "configurable-http-proxy is not installed: scripts/install --test does it where npm is"
    return ""
