"""task-spooler: a queue for one user on one machine, used through its command line as people do."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import ClassVar

from bench.peers.contract import FirstLine, PeerFailed, wait_for_line
from bench.settings import WORK_FOLDER, job_slots

SUBMIT_LOOP = 'i=0; while [ "$i" -lt "$1" ]; do tsp true; i=$((i + 1)); done'


class TaskSpooler:
    name: ClassVar[str] = "task-spooler"

    def __init__(self) -> None:
        self._use(WORK_FOLDER / "taskspooler")

    def available(self) -> str | None:
        return None if shutil.which("tsp") else "not installed: tsp"

    def up(self) -> None:
        """In a new folder: ext4 is slow to create files where many were just deleted."""
        self.down()
        self._use(WORK_FOLDER / "taskspooler" / str(time.time_ns()))
        self.folder.mkdir(parents=True)
        self._tsp("-S", str(job_slots()))

    def _use(self, folder: Path) -> None:
        """Commands write each job's output below TMPDIR; the first command starts the server."""
        self.folder = folder
        self.env = {
            **os.environ,
            "TS_SOCKET": str(folder / "socket"),
            "TS_SLOTS": str(job_slots()),
            "TS_MAXFINISHED": "100000",
            "TMPDIR": str(folder),
        }

    def down(self) -> None:
        if (self.folder / "socket").exists():
            self._tsp("-K")

    def one_by_one(self, count: int) -> float:
        self._tsp("-C")
        began = time.perf_counter()
        # A shell loop, so that no time of Python's is in the figure.
        subprocess.run(
            ["sh", "-c", SUBMIT_LOOP, "sh", str(count)], env=self.env, stdout=subprocess.DEVNULL, check=True
        )
        self._tsp("-w")
        while (states := self._states()).count("finished") < len(states):
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        if len(states) != count:
            raise PeerFailed(f"{len(states)} of {count} jobs finished")
        return seconds

    def bulk(self, count: int) -> float | None:
        del count
        return None

    def first_line(self) -> FirstLine:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        called = time.perf_counter()
        number = self._tsp("sh", "-c", "echo ready", TMPDIR=str(folder)).strip()
        answered = time.perf_counter()
        seen = wait_for_line(folder, "ts-out.*")
        self._tsp("-w", number)
        return FirstLine(answered - called, seen - answered)

    def server_pids(self) -> dict[str, int]:
        """The server is not a child of ours: it is the process that holds the socket."""
        name = f"TS_SOCKET={self.env['TS_SOCKET']}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if (entry / "comm").read_text() == "tsp\n" and name in (entry / "environ").read_bytes():
                    return {"server": int(entry.name)}
            except OSError:  # it ended while we looked
                continue
        raise PeerFailed("no server")

    def _states(self) -> list[str]:
        return [line.split()[1] for line in self._tsp("-l").splitlines()[1:]]

    def _tsp(self, *arguments: str, **env: str) -> str:
        done = subprocess.run(
            ["tsp", *arguments], env={**self.env, **env}, capture_output=True, text=True, check=True
        )
        return done.stdout
