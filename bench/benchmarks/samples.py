"""What it costs to look at 100 running jobs every ten seconds, as a part of one core.

The jobs are real: a shell and a sleeping program each, in cgroups of their own. A round reads all of them and the
machine, keeps it, and every sixth writes it to disk, as in the server.
"""

from __future__ import annotations

import getpass
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.measurements import OUR_SYSTEM, Measurement
from bench.settings import Settings
from heliostat.config import Home
from heliostat.config import Settings as HeliostatSettings
from heliostat.engines.local.engine import LocalEngine
from heliostat.loops.sampler import Sampler, SamplerSources
from heliostat.models import Attempt, Job, JobSpec, JobState, Resources, format_attempt_id
from heliostat.store.samples import SampleStore

BENCHMARK = "samples"
JOBS = 100
ROUNDS = 60
SAMPLE_INTERVAL_SECONDS = 10
FLUSH_ROUNDS = 6
SETTLE_SECONDS = 20.0


def measure(settings: Settings) -> Iterator[Measurement]:
    del settings
    with tempfile.TemporaryDirectory(prefix="heliostat-bench-") as folder, ExitStack() as stack:
        engine = _engine(Home(Path(folder)))
        stack.callback(engine.close)
        attempts = [_attempt(number, engine) for number in range(1, JOBS + 1)]
        stack.callback(_stop, engine, attempts)
        engine.start(attempts)
        _wait_until_inside(engine)
        clock = _Clock()
        store = SampleStore(Path(folder) / "samples.db", SAMPLE_INTERVAL_SECONDS)
        stack.callback(store.close)
        read, kept, written = _rounds(engine, store, clock, [attempt.job for attempt in attempts])
        store.close()  # so that all of it is in one file
        size_kb = (Path(folder) / "samples.db").stat().st_size / 1000
        yield from _figures(read, kept, written, size_kb / JOBS)


def _figures(read: float, kept: float, written: float, size_kb: float) -> Iterator[Measurement]:
    percent = (read + kept + written) * 100 / SAMPLE_INTERVAL_SECONDS
    note = f"reading {read * 1e3:.2f} ms, keeping {kept * 1e3:.2f} ms, writing {written * 1e3:.2f} ms a round"
    yield Measurement(
        BENCHMARK,
        f"{JOBS} jobs every {SAMPLE_INTERVAL_SECONDS} s",
        OUR_SYSTEM,
        percent,
        "% of a core",
        "lower",
        note,
    )
    note = f"{ROUNDS} samples of cpu and memory, and indexes"
    yield Measurement(BENCHMARK, f"{JOBS} jobs, on disk", OUR_SYSTEM, size_kb, "kB a job", "lower", note)


def _rounds(engine: LocalEngine, store: SampleStore, clock: _Clock, jobs: list[Job]) -> tuple[float, float, float]:
    """Seconds of cpu of a round: to read, to keep in memory, to write."""
    fleet = SimpleNamespace(nodes=engine.nodes)
    controller = SimpleNamespace(tally=lambda: (jobs, 0))
    watched: Any = SamplerSources(engine, fleet, controller)  # type: ignore[arg-type]
    sampler = Sampler(watched, store, clock.now)
    spent = {"look": 0.0, "read": 0.0, "write": 0.0}
    engine.sample()
    for number in range(ROUNDS):
        clock.at += timedelta(seconds=SAMPLE_INTERVAL_SECONDS)
        time.sleep(0.02)
        began = time.thread_time()
        engine.sample()
        middle = time.thread_time()
        sampler.take_sample()  # reads once more
        looked = time.thread_time()
        if number % FLUSH_ROUNDS == FLUSH_ROUNDS - 1:
            store.flush(clock.at.timestamp())
            store.compact(clock.at.timestamp())
        spent["read"] += middle - began
        spent["look"] += looked - middle
        spent["write"] += time.thread_time() - looked
    read = spent["read"] / ROUNDS
    return read, max(0.0, spent["look"] / ROUNDS - read), spent["write"] / ROUNDS


class _Clock:
    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at


def _engine(home: Home) -> LocalEngine:
    for made in (home.jobs, home.attempts):
        made.mkdir(mode=0o711)
    home.path.chmod(0o711)
    return LocalEngine(HeliostatSettings(home))


def _attempt(number: int, engine: LocalEngine) -> Attempt:
    user = getpass.getuser()
    job = Job(
        id=number,
        kind="batch",
        name="sleeper",
        state=JobState.STARTING,
        user=user,
        unix_user=user,
        project="bench",
        resources=Resources(1, 64),
        spec=JobSpec(command=("sh", "-c", "sleep 600; :"), grace_seconds=0),
        submitted_at=datetime.now(UTC),
        attempt=1,
    )
    return Attempt(format_attempt_id(number, 1), job, engine.nodes()[0].name)


def _wait_until_inside(engine: LocalEngine) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        read = engine.sample().attempts
        if len(read) == JOBS and all(reading.memory_mib for reading in read.values()):
            return
        time.sleep(0.2)


def _stop(engine: LocalEngine, attempts: list[Attempt]) -> None:
    for attempt in attempts:
        engine.stop(attempt, 0)
    deadline = time.monotonic() + SETTLE_SECONDS
    while engine.sample().attempts and time.monotonic() < deadline:
        time.sleep(0.1)
