"""A whole server in a process of its own, spoken to in plain HTTP so that hostile requests can be sent too."""

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heliostat.engines.local.cgroups import CgroupsUnavailable, find_cgroups
from support import fork_server
from support.waiting import poll_interval_seconds

API = "/api/v1"
DEADLINE_SECONDS = 90.0
START_SECONDS = 150.0  # a machine with more to do than it can reads a server's files slowly
_SERVE = (
    "from heliostat.server import serve; from heliostat.config import find_home, load_settings; "
    "serve(load_settings(find_home(), {'server': {'port': 0}}))"
)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        return error


class RunningServer:
    """Runs as whoever runs the tests, or as another Unix user. Its home can be passed through by everybody."""

    def __init__(
        self,
        settings: str = "",
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
        python: str = sys.executable,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="helio-"))  # not tmp_path: nobody else may enter that
        self.folder.chmod(0o755)
        self.home = self.folder / "home"
        self.home.mkdir()
        (self.home / "cluster.toml").write_text(settings)
        if user is not None:
            shutil.chown(self.home, user)
        self._environment = {**(os.environ if environment is None else environment)}
        self._user, self._python = user, python
        self.start()

    def start(self) -> None:
        with open(self.folder / "log", "ab") as log:
            self.process = self._process(log.fileno())
        try:
            wait_for(self._is_up, "the server to answer", lambda: self.log, seconds=START_SECONDS)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        status = json.loads((self.home / "server.json").read_text())
        self.url: str = status["url"]
        self.pid: int = status["pid"]

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def remove(self) -> None:
        """Stop it and all its jobs, and take everything away."""
        with contextlib.suppress(Exception):
            self._cancel_everything()
        self.stop()
        instance = hashlib.sha256(str(self.home).encode()).hexdigest()[:8]
        groups = find_cgroups(instance)
        if not isinstance(groups, CgroupsUnavailable):
            groups.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        raw: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        uid: int | None = None,
        tcp: bool = False,
    ) -> Answer:
        """Over the Unix socket as the given Unix user, or over TCP; `body` goes as JSON, `raw` as it is."""
        connection = self._connect(uid, tcp)
        sent = json.dumps(body).encode() if raw is None and body is not None else raw
        as_json = {"Content-Type": "application/json"} if sent is not None else {}
        try:
            connection.request(method, API + path, sent, {**as_json, **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def submit(self, uid: int | None = None, **body: object) -> int:
        answer = self.ask("POST", "/jobs", body, uid=uid)
        assert answer.status == 201, answer.body
        number: int = answer.json["id"]
        return number

    def finished(self, job_id: int, uid: int | None = None) -> dict[str, Any]:
        """The job once it is over."""
        body = {"job_ids": [job_id], "timeout_seconds": DEADLINE_SECONDS}
        answer = self.ask("POST", "/jobs/wait", body, uid=uid)
        assert answer.json["finished"], f"job {job_id} is not over: {self.show(job_id, uid)}\n{self.log}"
        return self.show(job_id, uid)

    def run(self, uid: int | None = None, **body: object) -> dict[str, Any]:
        return self.finished(self.submit(uid, **body), uid)

    def show(self, job_id: int, uid: int | None = None) -> dict[str, Any]:
        job: dict[str, Any] = self.ask("GET", f"/jobs/{job_id}", uid=uid).json
        return job

    def output(self, job_id: int, uid: int | None = None, stream: str = "stdout") -> str:
        return self.ask("GET", f"/jobs/{job_id}/logs?stream={stream}", uid=uid).body.decode()

    def jobs(self) -> int:
        """How many jobs are stored."""
        items = self.ask("GET", "/jobs?limit=1").json["items"]
        number: int = items[0]["id"] if items else 0
        return number

    @contextlib.contextmanager
    def raw_connection(self, uid: int | None = None, tcp: bool = False) -> Iterator[socket.socket]:
        connection = self._connect(uid, tcp)
        connection.connect()
        assert connection.sock
        try:
            yield connection.sock
        finally:
            connection.close()

    def _process(self, log: int) -> "subprocess.Popen[bytes] | fork_server.ForkedProcess":
        environment = {**self._environment, "HELIOSTAT_HOME": str(self.home)}
        if not self._user and self._python == sys.executable and fork_server.can_fork_with(environment):
            return fork_server.fork_process(_SERVE, environment, log)
        as_user = ["/usr/sbin/runuser", "-u", self._user, "--"] if self._user else []
        command = [*as_user, self._python, "-c", _SERVE]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd="/")

    def _connect(self, uid: int | None, tcp: bool) -> http.client.HTTPConnection:
        if tcp:
            host, _, port = self.url.removeprefix("http://").rpartition(":")
            return http.client.HTTPConnection(host, int(port), timeout=DEADLINE_SECONDS + 5)
        return _UnixConnection(self.home / "heliostat.sock", uid)

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log
        if not (self.home / "server.json").exists():
            return False
        with contextlib.suppress(OSError):
            return self.ask("GET", "/nothing").status == 404
        return False

    def _cancel_everything(self) -> None:
        items = self.ask("GET", "/jobs?unfinished=true&limit=1000").json["items"]
        ids = [job["id"] for job in items]
        self.ask("POST", "/jobs/cancel", {"job_ids": ids})
        self.ask("POST", "/jobs/wait", {"job_ids": ids, "timeout_seconds": 15})


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, uid: int | None) -> None:
        super().__init__("localhost", timeout=DEADLINE_SECONDS + 5)
        self._path, self._uid = path, uid

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        with acting_as(self._uid):  # the kernel notes who we are at this moment
            self.sock.connect(str(self._path))


@contextlib.contextmanager
def acting_as(uid: int | None) -> Iterator[None]:
    """As another Unix user, for a moment, as far as the kernel's checks go. Needs root."""
    if uid is None:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def wait_for(
    condition: Callable[[], Any],
    what: str,
    more: Callable[[], object] = lambda: "",
    seconds: float = DEADLINE_SECONDS,
) -> Any:
    """What the condition gives once it is true; fails after a while, saying what was waited for."""
    began = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - began
        assert waited < seconds, f"waited in vain for {what} {more()}"
        time.sleep(poll_interval_seconds(waited))
    return found
