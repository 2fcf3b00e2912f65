"""Ports of jobs in a real Slurm, used as programs use them."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.running_server import RunningServer, wait_for
from support.proxy_browser import WEBSOCKET_SERVER, ProxyBrowser, ProxyResponse, proxy_url


@dataclass(frozen=True)
class JobPort:
    """Of a running job, with the key of whoever's it is."""

    server: RunningServer
    job: int
    number: int
    key: str

    @classmethod
    def with_new_key(cls, server: RunningServer, job: tuple[int, int], uid: int | None = None) -> "JobPort":
        answer = server.ask("POST", f"/jobs/{job[0]}/ports/{job[1]}/key", {}, uid=uid)
        assert answer.status == 200, answer.body
        return cls(server, *job, answer.json["key"])

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [("Authorization", f"Bearer {self.key}")]

    def send(self, method: str, path: str, body: Any = None) -> ProxyResponse:
        return ProxyBrowser(self.server).send(method, self.url(path), body=body, headers=self.headers)

    def get(self, path: str = "echo") -> ProxyResponse:
        return self.send("GET", path)

    def url(self, path: str) -> str:
        return f"{proxy_url(self.server)}/s/{self.job}-{self.number}/{path}"


def relay_pids(server: RunningServer, job: int) -> list[int]:
    """The processes on the node that lead into this job of this server: others have a job of that number too."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:3] == [b"python3", b"-I", b"-B"] and f"{server.home}/jobs/{job}/inside-".encode() in words[3]:
            found.append(int(folder.name))
    return found


def kill_server(server: RunningServer) -> None:
    os.kill(server.pid, 9)
    server.process.wait(120)


def start_websocket_job(server: RunningServer, uid: int | None = None) -> tuple[int, int]:
    job = server.submit(uid, command=[sys.executable, str(WEBSOCKET_SERVER), "port"], cpus=1)
    file = server.home / "jobs" / str(job) / "work" / "port"
    wait_for(file.exists, "the server inside the job listens", lambda: server.output(job, uid, "stderr"))
    wait_for(lambda: server.show(job, uid)["state"] == "running", "it is known to run")
    return job, int(file.read_text())


def run_helio(server: RunningServer, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "heliostat.cli.main", *words]
    environment = {**os.environ, "HELIOSTAT_HOME": str(server.home)}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False, cwd="/")
