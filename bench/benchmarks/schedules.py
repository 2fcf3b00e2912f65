"""What schedules cost that wait: the cpu time of an idle server with 10,000 of them, and of one with none."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.cpu_usage import process_cpu_seconds
from bench.measurements import OUR_SYSTEM, Measurement
from bench.peers.heliostat import Heliostat
from bench.settings import Settings

BENCHMARK = "schedules"
SCHEDULES = 10_000
QUIET_SECONDS = 10.0  # in which what came before is finished
IDLE_SECONDS = 60.0


def measure(settings: Settings) -> Iterator[Measurement]:
    del settings
    server = Heliostat()
    server.home.mkdir(parents=True, exist_ok=True)
    try:
        server.up()
        without = _percent(server)
        server.down()
        (server.home / "cluster.toml").write_text(f"queue.max_schedules_per_user = {SCHEDULES}\n")
        server.start()
        for number in range(SCHEDULES):
            # Spread over the day, none of them due while it is measured.
            minute, hour = number % 60, (time.gmtime().tm_hour + 2 + number % 20) % 24
            server.client.schedules.create(
                f"s{number}", f"{minute} {hour} * * *", {"command": "true"}, time_zone="UTC"
            )
        held = _percent(server)
    finally:
        server.down()
    for system, value in ((OUR_SYSTEM, held), ("the same, none", without)):
        words = f"{SCHEDULES:,} that wait, cpu time of the server"
        yield Measurement(BENCHMARK, words, system, value, "% of a core", "lower", f"over {IDLE_SECONDS:g} s")


def _percent(server: Heliostat) -> float:
    time.sleep(QUIET_SECONDS)
    (pid,) = server.server_pids().values()
    before, began = process_cpu_seconds(pid), time.monotonic()
    time.sleep(IDLE_SECONDS)
    return (process_cpu_seconds(pid) - before) * 100 / (time.monotonic() - began)
