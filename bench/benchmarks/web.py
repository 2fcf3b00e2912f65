"""The web: how quickly pages answer, how much a first look loads, and what people who watch cost the others.

Times of the server are its `Server-Timing` header. 200 live pages belong to 40 people, three of five show all
jobs and the others only the own ones; meanwhile a program submits ten jobs a second.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlsplit

from bench import web_test_home
from bench.measurements import OUR_SYSTEM, Measurement
from bench.peers import PeerFailed
from bench.peers.heliostat import Heliostat
from bench.settings import WORK_FOLDER, Settings

BENCHMARK = "web"
HOME = WORK_FOLDER / "web"
FINISHED_JOBS = 40_000
VIEWER_COUNT = 200
IDLE_SECONDS = 20.0
QUIET_CORES = 0.02
BUSY_SECONDS = 20.0
PAUSE_SECONDS = 0.1
SERVER_TIME = re.compile(r"app;dur=([0-9.]+)")
SORTS = ("-id", "id", "user", "-user", "project", "gpus", "-gpus", "ended_at", "-ended_at")
FILTERS = (
    "",
    "state=unfinished",
    "state=finished",
    "state=failed",
    "q=train-1",
    "q=nothing-is-called-so",
    "q=train-1&state=failed",
    "user=user07",
    "project=vision",
    "user=user07&q=train",
    "page=700",
    "q=train&page=400",
)


@dataclass(frozen=True)
class PageResponse:
    server_ms: float
    wall_ms: float
    body: bytes
    wire_bytes: int


@dataclass(frozen=True)
class RunningSite:
    """A server of ours that runs, and the cookies of its people."""

    heliostat: Heliostat
    url: str
    pid: int
    session_secrets: list[str]

    def get(self, path: str) -> PageResponse:
        address = urlsplit(self.url)
        connection = HTTPConnection(address.hostname or "", address.port or 0)
        headers = {"Cookie": f"helio_session={self.session_secrets[0]}", "Accept-Encoding": "gzip"}
        began = time.perf_counter()
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        data = response.read()
        wall_ms = (time.perf_counter() - began) * 1000
        connection.close()
        if response.status != 200:
            raise PeerFailed(f"GET {path}: status {response.status}")
        found = SERVER_TIME.search(response.headers.get("Server-Timing", ""))
        head = sum(len(name) + len(value) + 4 for name, value in response.getheaders()) + 17
        body = gzip.decompress(data) if response.headers.get("Content-Encoding") == "gzip" else data
        return PageResponse(float(found[1]) if found else 0.0, wall_ms, body, head + len(data))


def measure(settings: Settings) -> Iterator[Measurement]:
    if reason := Heliostat().available():
        yield Measurement(BENCHMARK, "", OUR_SYSTEM, None, "", "lower", f"not available: {reason}")
        return
    with _site() as site:
        yield from _pages(site, settings)
        yield from _first_look(site)
        yield from _idle(site)
        yield from _crowd(site)


@contextmanager
def _site() -> Iterator[RunningSite]:
    heliostat = Heliostat(HOME)
    heliostat.down()
    shutil.rmtree(HOME, ignore_errors=True)
    secrets = web_test_home.create_home(HOME, FINISHED_JOBS)
    try:
        heliostat.start()
        web_test_home.fill_queue(heliostat.client)
        status = heliostat.status()
        site = RunningSite(heliostat, status["url"], status["pid"], secrets)
        site.get("/jobs")  # loads the templates
        time.sleep(2)  # plans and forecasts of the new queue
        yield site
    finally:
        heliostat.down()


def _pages(site: RunningSite, settings: Settings) -> Iterator[Measurement]:
    queue = [site.get("/jobs?whose=all&state=pending") for _ in range(settings.tries)]
    own = median(answer.server_ms for answer in queue)
    yield Measurement(
        BENCHMARK, "a page of 1,000 waiting jobs", OUR_SYSTEM, own, "ms", "lower", "server time, median"
    )
    whole = "the same page, call to last byte"
    yield Measurement(BENCHMARK, whole, OUR_SYSTEM, median(answer.wall_ms for answer in queue), "ms", "lower")
    floor = _static_ms(len(queue[0].body), settings.tries)
    yield Measurement(BENCHMARK, whole, "http.server, a file of that size", floor, "ms", "lower")
    slow = sorted(_every_view(site, max(3, settings.tries // 10)))
    note = f"{FINISHED_JOBS} jobs, median of {len(slow)} views; sorted and filtered in every way"
    yield Measurement(
        BENCHMARK, "any list of jobs, median", OUR_SYSTEM, median(ms for ms, _ in slow), "ms", "lower", note
    )
    for ms, view in slow[:-4:-1]:
        yield Measurement(BENCHMARK, "any list of jobs, the slowest", OUR_SYSTEM, ms, "ms", "lower", view)


def _every_view(site: RunningSite, tries: int) -> Iterator[tuple[float, str]]:
    for sort, chosen in product(SORTS, FILTERS):
        view = f"/jobs?whose=all&sort={sort}" + (f"&{chosen}" if chosen else "")
        yield median(site.get(view).server_ms for _ in range(tries)), view


def _static_ms(size: int, tries: int) -> float:
    folder = WORK_FOLDER / "static"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "page.html").write_bytes(b"x" * size)
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = (server.stdout or sys.stdin).readline()
        site = RunningSite(Heliostat(), line[line.index("(") + 1 : line.index("/)")], server.pid, [""])
        return median(site.get("/page.html").wall_ms for _ in range(tries))
    finally:
        server.terminate()
        server.wait()


def _first_look(site: RunningSite) -> Iterator[Measurement]:
    """Everything a browser with an empty cache loads before and while it shows the page."""
    page = site.get("/jobs?whose=all")
    wanted = list(dict.fromkeys(re.findall(r'(?:src|href)="(/static/[^"#]+)', page.body.decode())))
    sizes = [page.wire_bytes]
    for path in wanted:  # grows while we walk
        answer = site.get(path)
        sizes.append(answer.wire_bytes)
        if path.endswith(".js"):
            names = re.findall(r'from "\./([^"]+)"', answer.body.decode())
            wanted += [new for name in names if (new := path.rpartition("/")[0] + "/" + name) not in wanted]
    note = f"{len(sizes)} requests, the page itself {page.wire_bytes / 1000:.1f} KB, with headers"
    yield Measurement(BENCHMARK, "first look at the list", OUR_SYSTEM, sum(sizes) / 1000, "KB", "lower", note)
    yield Measurement(
        BENCHMARK, "a second look", OUR_SYSTEM, page.wire_bytes / 1000, "KB", "lower", "the rest is kept there"
    )


def _idle(site: RunningSite) -> Iterator[Measurement]:
    while _cpu_during(site.pid, 2.0) > QUIET_CORES * 2.0:  # forecasts of the new queue
        pass
    alone = _quiet_cores(site.pid)
    with _viewers(site, VIEWER_COUNT):
        watched = _quiet_cores(site.pid)
    each = (watched - alone) / VIEWER_COUNT * 60 * 1000
    note = f"of {VIEWER_COUNT}; all together {watched * 100:.2f} % of a core, nobody: {alone * 100:.2f} %"
    yield Measurement(
        BENCHMARK, "one viewer while nothing happens", OUR_SYSTEM, max(0.0, each), "ms/min of cpu", "lower", note
    )


def _quiet_cores(pid: int) -> float:
    """The median of some moments: what the server does by itself now and then is nobody's doing."""
    return median(_cpu_during(pid, IDLE_SECONDS / 7) for _ in range(7)) / (IDLE_SECONDS / 7)


def _crowd(site: RunningSite) -> Iterator[Measurement]:
    alone = _submissions_ms(site, BUSY_SECONDS)
    with _viewers(site, VIEWER_COUNT) as seen:
        before = _cpu(site.pid)
        watched = _submissions_ms(site, BUSY_SECONDS)
        cores = (_cpu(site.pid) - before) / BUSY_SECONDS
    for name, of in (("median", median), ("p95", lambda times: quantiles(times, n=20)[-1])):
        note = f"{cores:.2f} cores used by the server"
        yield Measurement(
            BENCHMARK,
            f"submit, {name}",
            OUR_SYSTEM,
            of(watched),
            "ms",
            "lower",
            f"{VIEWER_COUNT} live pages; {note}",
        )
        yield Measurement(BENCHMARK, f"submit, {name}", "the same, nobody watches", of(alone), "ms", "lower")
    note = f"p95 {seen['every_p95']:.1f} s; {seen['per_second']:.0f} a second in all, answers within "
    note += f"{seen['answer_ms']:.0f} ms, {seen['answer_bytes'] / 1000:.1f} KB on average"
    yield Measurement(
        BENCHMARK, "a page is refreshed every", OUR_SYSTEM, seen["every_seconds"], "s", "lower", note
    )


def _submissions_ms(site: RunningSite, seconds: float) -> list[float]:
    times, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.perf_counter()
        site.heliostat.client.submit(["sleep", "2"], name="short", cpus=1)
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(PAUSE_SECONDS)
    return times


@contextmanager
def _viewers(site: RunningSite, count: int) -> Iterator[dict[str, float]]:
    """What they saw is there once they are gone."""
    looks = ("/jobs?whose=all", "/jobs?whose=mine")
    pages = [
        (site.session_secrets[n % len(site.session_secrets)], looks[n // len(site.session_secrets) % 2])
        for n in range(count)
    ]
    command = [sys.executable, "-m", "bench.viewers"]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
    seen: dict[str, float] = {}
    try:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps({"address": site.url, "pages": pages}) + "\n")
        process.stdin.flush()
        if process.stdout.readline() != "ready\n":
            raise PeerFailed("the viewers could not open their pages")
        yield seen
        seen |= json.loads(process.communicate("\n", timeout=30)[0])
    finally:
        process.kill()
        process.wait()


def _cpu_during(pid: int, seconds: float) -> float:
    before = _cpu(pid)
    time.sleep(seconds)
    return _cpu(pid) - before


def _cpu(pid: int) -> float:
    """Seconds that all its threads have worked, also those that are gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
