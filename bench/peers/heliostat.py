"""Heliostat itself: its server as a user starts it, jobs through the Python client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bench.peers.contract import FirstLine, PeerFailed
from bench.settings import WORK_FOLDER, job_slots

if TYPE_CHECKING:
    from heliostat import Client

HELIO = Path(sys.executable).with_name("helio")
START_SECONDS = 60
# A job holds a core at least, and a small machine has fewer cores than there are GPUs here.
SERVE_WITH_CORES = """
import os
os.sched_getaffinity = lambda pid: set(range({cores}))
from heliostat.cli.background_server import main
main()
"""


class Heliostat:
    name: ClassVar[str] = "Heliostat"

    def __init__(self, home: Path = WORK_FOLDER / "home", gpus: int = 0) -> None:
        """With `gpus` the machine has so many, made up, and every job asks for one."""
        self.home = home
        self.gpus = gpus
        self._request: dict[str, Any] = {"gpus": 1} if gpus else {}
        self.env = {**os.environ, "HELIOSTAT_HOME": str(home)}
        self._client: Client | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def available(self) -> str | None:
        if not HELIO.exists():
            return f"not installed: {HELIO}"
        try:
            from heliostat import Client
        except ImportError as error:
            return str(error)
        del Client
        return None

    def up(self) -> None:
        """Start on a new home: ext4 is slow to create files where many were just deleted."""
        self.down()
        self.home = WORK_FOLDER / "homes" / str(time.time_ns())
        self.env["HELIOSTAT_HOME"] = str(self.home)
        self.start()

    def start(self) -> None:
        """Start on the home as it is."""
        from heliostat import Client

        self.home.mkdir(parents=True, exist_ok=True)
        if self.gpus:
            self._start_with_gpus()
        else:
            self._helio("up", "--background", "--port", "0")
        self._client = Client(home=self.home)

    def down(self) -> None:
        self._client = None
        if self.home.exists():
            subprocess.run([HELIO, "down"], env=self.env, capture_output=True, check=False)
        if self._server is not None:
            self._server.terminate()  # `helio down` finds none that has not got as far as to answer
            self._server.wait()
            self._server = None

    def one_by_one(self, count: int) -> float:
        client = self.client
        began = time.perf_counter()
        jobs = [client.submit(["true"], **self._request) for _ in range(count)]
        client.wait(jobs)
        return time.perf_counter() - began

    def bulk(self, count: int) -> float | None:
        client = self.client
        began = time.perf_counter()
        client.wait(client.submit_many([{"command": ["true"], **self._request}] * count))
        return time.perf_counter() - began

    def run_program(self, program: Path, count: int) -> None:
        self.client.wait(self.client.submit_many([{"command": [str(program)], **self._request}] * count))

    def first_line(self) -> FirstLine:
        called = time.perf_counter()
        job = self.client.submit(["echo", "ready"], **self._request)
        answered = time.perf_counter()
        if not any("\n" in chunk.text for chunk in job.follow()):
            raise PeerFailed("the job ended without its line")
        seen = time.perf_counter()
        job.wait()
        return FirstLine(answered - called, seen - answered)

    def server_pids(self) -> dict[str, int]:
        return {"server": self.status()["pid"]}

    def status(self) -> dict[str, Any]:
        """What `helio status --json` says."""
        return dict(json.loads(self._helio("status", "--json")))

    @property
    def client(self) -> Client:
        if self._client is None:
            raise PeerFailed("not up")
        return self._client

    def _start_with_gpus(self) -> None:
        """As `helio up --background --simulate-gpus` does, on a machine that says it has enough cores."""
        code = SERVE_WITH_CORES.format(cores=max(job_slots(), self.gpus))
        options = json.dumps({"port": 0, "simulate_gpus": f"{self.gpus}xA100"})
        with (self.home / "server.log").open("ab") as log:
            command = [sys.executable, "-c", code, options]
            self._server = subprocess.Popen(
                command, env=self.env, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._server.poll() is not None:
                break
            if subprocess.run([HELIO, "status"], env=self.env, capture_output=True, check=False).returncode == 0:
                return
        raise PeerFailed(f"the server did not start, see {self.home}/server.log")

    def _helio(self, *arguments: str) -> str:
        done = subprocess.run([HELIO, *arguments], env=self.env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerFailed(f"helio {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout
