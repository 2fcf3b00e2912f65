"""HyperQueue from PyPI: its local cluster and Python client, in an environment and a process of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, ClassVar

from bench.peers.contract import FirstLine, PeerFailed
from bench.settings import WORK_FOLDER, job_slots

PYTHON = WORK_FOLDER / "venv" / "bin" / "python"
DRIVER = Path(__file__).with_name("hyperqueue_driver.py")
STOP_SECONDS = 20


class HyperQueue:
    name: ClassVar[str] = "HyperQueue"

    def __init__(self) -> None:
        self.folder = WORK_FOLDER / "hyperqueue"
        self._driver: subprocess.Popen[str] | None = None

    def available(self) -> str | None:
        if not PYTHON.exists():
            return f"not installed: {PYTHON}"
        found = subprocess.run([PYTHON, "-c", "import hyperqueue"], capture_output=True, check=False)
        return None if found.returncode == 0 else "not installed: the hyperqueue package"

    def up(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        with (self.folder / "driver.log").open("wb") as log:
            self._driver = subprocess.Popen(
                [PYTHON, "-P", DRIVER, str(job_slots())],  # -P: this folder has a hyperqueue.py too
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._ask("ready")

    def down(self) -> None:
        if self._driver is None:
            return
        driver, self._driver = self._driver, None
        try:
            driver.communicate(timeout=STOP_SECONDS)  # closes its input: the driver stops the cluster and ends
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.communicate()

    def one_by_one(self, count: int) -> float:
        return float(self._ask("one_by_one", count))

    def bulk(self, count: int) -> float | None:
        return float(self._ask("bulk", count))

    def first_line(self) -> FirstLine:
        submit_seconds, line_seconds = self._ask("first_line")
        return FirstLine(submit_seconds, line_seconds)

    def server_pids(self) -> dict[str, int]:
        if self._driver is None:
            raise PeerFailed("not up")
        return {"server, worker and Python client": self._driver.pid}

    def _ask(self, verb: str, *arguments: int) -> Any:
        driver = self._driver
        if driver is None or driver.stdin is None or driver.stdout is None:
            raise PeerFailed("not up")
        driver.stdin.write(json.dumps([verb, *arguments]) + "\n")
        driver.stdin.flush()
        answer = driver.stdout.readline()
        if not answer:
            raise PeerFailed(f"the driver ended, see {self.folder}/driver.log")
        return json.loads(answer)
