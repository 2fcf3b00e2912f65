"""The proxy to servers inside jobs, next to direct access and to configurable-http-proxy, which JupyterHub uses.

All three lead to the same server. Each round asks through one after the other, in another order each time, as the
machine may be busier in one moment than in the next; the median of the rounds counts.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal, TypeVar

from bench.measurements import OUR_SYSTEM, Measurement
from bench.peers import PeerFailed
from bench.peers.heliostat import Heliostat
from bench.settings import WORK_FOLDER, Settings
from heliostat.errors import HeliostatError

T = TypeVar("T")
BENCHMARK = "proxy"
CHP = "configurable-http-proxy"
_CHP = WORK_FOLDER / "npm" / "node_modules" / ".bin" / "configurable-http-proxy"
_BENCH = Path(__file__).parents[1]
_SECONDS, _MEGABYTES = 3.0, 100
_UP_SECONDS = 30.0
_MEASURES: tuple[tuple[str, str, str, Literal["higher", "lower"]], ...] = (
    ("requests_per_second", "small GETs, 16 connections", "/s", "higher"),
    ("latency_ms", "a small GET, median", "ms", "lower"),
    ("latency_p95_ms", "a small GET, p95", "ms", "lower"),
    ("cpu_us", "cpu of a small GET", "us", "lower"),
    ("download_mib_per_second", "a download of 100 MiB", "MiB/s", "higher"),
    ("upload_mib_per_second", "an upload of 100 MiB", "MiB/s", "higher"),
    ("echo_ms", "a WebSocket echo, median", "ms", "lower"),
)


@dataclass(frozen=True)
class ProxyRoute:
    system: str
    url: str
    key: str = ""
    pid: int | None = None  # of the proxy


def measure(settings: Settings) -> Iterator[Measurement]:
    if reason := Heliostat().available():
        yield Measurement(BENCHMARK, "", OUR_SYSTEM, None, "", "lower", f"not available: {reason}")
        return
    with ExitStack() as stack:
        port, ours = stack.enter_context(_heliostat())
        ways = [ours, ProxyRoute("direct access", f"http://127.0.0.1:{port}/")]
        try:
            ways.append(stack.enter_context(_configurable(port)))
        except (PeerFailed, OSError) as error:
            yield Measurement(BENCHMARK, "", CHP, None, "", "lower", f"not available: {error}")
        yield from _figures(ways, settings.repeat)


def _figures(ways: list[ProxyRoute], rounds: int) -> Iterator[Measurement]:
    found: dict[str, list[dict[str, float]]] = {way.system: [] for way in ways}
    for number in range(rounds):
        for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
            found[way.system].append(_asked(way))
    for field, words, unit, better in _MEASURES:
        for way in ways:
            values = [one[field] for one in found[way.system] if field in one]
            if values:
                note = f"{min(values):.3g} to {max(values):.3g} in {len(values)} rounds"
                yield Measurement(BENCHMARK, words, way.system, median(values), unit, better, note)


def _asked(way: ProxyRoute) -> dict[str, float]:
    """What one round says; with the processor time of the proxy, which other work disturbs least."""
    before = _cpu_seconds(way.pid)
    small = _client(way, "small", _SECONDS)
    used = (_cpu_seconds(way.pid) - before) / small["requests"] * 1e6
    return {**small, **_client(way, "streams", _MEGABYTES), **({"cpu_us": used} if way.pid else {})}


def _cpu_seconds(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _client(way: ProxyRoute, kind: str, amount: float) -> dict[str, float]:
    command = [sys.executable, _BENCH / "proxy_client.py", way.url, way.key, kind, str(amount)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise PeerFailed(f"{way.system}: {(done.stderr or done.stdout).strip()[-300:]}")
    return dict(json.loads(done.stdout))


@contextmanager
def _heliostat() -> Iterator[tuple[int, ProxyRoute]]:
    """A server of ours with the server behind it in a job, and its port."""
    heliostat = Heliostat()
    with tempfile.TemporaryDirectory(prefix="proxied-") as folder:
        try:
            heliostat.up()
            words = [sys.executable, str(_BENCH / "proxied_server.py"), f"{folder}/port"]
            job = heliostat.client.submit(words, cpus=1, memory="512M")
            port = int(_once(Path(folder, "port").read_text, "the server behind the proxies"))
            told = _once(lambda: heliostat.client.jobs.create_port_key(job.id, port), "its way through the proxy")
            yield port, ProxyRoute(OUR_SYSTEM, told["url"], told["key"], heliostat.status()["pid"])
            job.cancel()
        finally:
            heliostat.down()


@contextmanager
def _configurable(port: int) -> Iterator[ProxyRoute]:
    node = shutil.which("node")
    if node is None or not _CHP.exists():
        raise PeerFailed("not installed: bench/install.sh does it, with npm")
    own, api = _free_port(), _free_port()
    words = [node, _CHP, "--ip", "127.0.0.1", "--port", str(own), "--api-port", str(api), "--log-level", "error"]
    target = ["--default-target", f"http://127.0.0.1:{port}"]
    environment = {**os.environ, "CONFIGPROXY_AUTH_TOKEN": "bench"}
    process = subprocess.Popen([*words, *target], env=environment, stdout=subprocess.DEVNULL)
    try:
        _once(lambda: socket.create_connection(("127.0.0.1", own)).close(), CHP)
        yield ProxyRoute(CHP, f"http://127.0.0.1:{own}/", pid=process.pid)
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as here:
        return int(here.getsockname()[1])


def _once(ask: Callable[[], T], what: str) -> T:
    """What it gives as soon as it gives something."""
    until = time.monotonic() + _UP_SECONDS
    while True:
        try:
            return ask()
        except (OSError, ValueError, HeliostatError) as error:
            if time.monotonic() > until:
                raise PeerFailed(f"{what} does not come up: {error}") from error
            time.sleep(0.05)
