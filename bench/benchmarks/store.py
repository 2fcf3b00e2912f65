"""Answers and start-up of a server whose store already holds 100,000 finished jobs.

The server's own time is its `Server-Timing` header. Beside it stands a store with one job, so that what the
number of jobs costs can be told from what every answer costs.
"""

from __future__ import annotations

import re
import shutil
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

from bench.filled_store import create_filled_store
from bench.measurements import OUR_SYSTEM, Measurement
from bench.peers import PeerFailed
from bench.peers.heliostat import Heliostat
from bench.settings import WORK_FOLDER, Settings

BENCHMARK = "store"
FILLED_HOME = WORK_FOLDER / "store"
EMPTY_HOME = WORK_FOLDER / "store-empty"
FIRST_PAGE = "/api/v1/jobs?limit=50"
ONE_JOB = "/api/v1/jobs/1"
SERVER_TIME = re.compile(r"app;dur=([0-9.]+)")


def measure(settings: Settings) -> Iterator[Measurement]:
    if reason := Heliostat().available():
        yield Measurement(BENCHMARK, "", OUR_SYSTEM, None, "", "lower", f"not available: {reason}")
        return
    for home in (FILLED_HOME, EMPTY_HOME):
        Heliostat(home).down()
        shutil.rmtree(home, ignore_errors=True)
    create_filled_store(FILLED_HOME)
    yield from _of(OUR_SYSTEM, Heliostat(FILLED_HOME), settings)
    yield from _of("the same, one job", Heliostat(EMPTY_HOME), settings)


def _of(system: str, heliostat: Heliostat, settings: Settings) -> Iterator[Measurement]:
    try:
        starts = [_start(heliostat) for _ in range(settings.repeat)]
        note = f"{min(starts):.2f} to {max(starts):.2f}"
        yield Measurement(BENCHMARK, "start until it answers, median", system, median(starts), "s", "lower", note)
        heliostat.first_line()  # an empty store gets the one job that is asked for
        for name, path in {"first page of jobs": FIRST_PAGE, "one job": ONE_JOB}.items():
            times = [_server_ms(heliostat.home / "heliostat.sock", path) for _ in range(settings.tries)]
            yield Measurement(BENCHMARK, f"{name}, median", system, median(times), "ms", "lower", f"GET {path}")
    finally:
        heliostat.down()


def _start(heliostat: Heliostat) -> float:
    heliostat.down()
    began = time.perf_counter()
    heliostat.start()
    return time.perf_counter() - began


def _server_ms(path: Path, target: str) -> float:
    """One request over the server's Unix socket; what the server says it took."""
    connection = HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        response.read()
    finally:
        connection.close()
    found = SERVER_TIME.search(response.headers.get("Server-Timing", ""))
    if response.status != 200 or found is None:
        raise PeerFailed(f"GET {target}: status {response.status}, no time in its answer")
    return float(found[1])
