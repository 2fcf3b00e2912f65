"""`helio demo`: a throw-away cluster with a month behind it and people at work.

Hours of work pass in minutes, so that there is something to see: jobs are as long as in the month before them,
divided by the speed. All times shown are real.
"""

import tempfile
import threading
import time
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby, islice
from pathlib import Path

from heliostat.config import AuthSettings, Home, ServerSettings, Settings
from heliostat.demo.accounts import USERS
from heliostat.demo.database_seed import LastMonth, fill_store, make_user
from heliostat.demo.jobs import DemoJob
from heliostat.demo.usage_samples import StepRange, generate_usage_samples
from heliostat.demo.workload import generate_live_jobs
from heliostat.engines.simulated.clock import ScaledClock
from heliostat.engines.simulated.cluster import demo_nodes
from heliostat.engines.simulated.engine import SimulatedEngine
from heliostat.errors import HeliostatError
from heliostat.models import Caller, JobId
from heliostat.server import serve
from heliostat.server_log import get_logger
from heliostat.services.context import Context, utc_now
from heliostat.services.jobs.control import cancel_job
from heliostat.services.jobs.submission import submit_jobs
from heliostat.store.database import Store

log = get_logger()
DEFAULT_SPEED = 60.0
_MONTH_DAYS = 30
_AT_ONCE = 20


def run_demo(port: int = 0, speed: float = DEFAULT_SPEED, seed: int = 1) -> None:
    """Serve until interrupted; nothing of it stays."""
    with tempfile.TemporaryDirectory(prefix="heliostat-demo-") as folder:
        home = Home(Path(folder))
        settings = Settings(
            home,
            server=ServerSettings(port=port, engine="simulated"),
            auth=AuthSettings(default_department="visitors", default_project="tour"),
        )
        demo = _Demo(speed, seed)
        clock = ScaledClock()
        try:
            serve(settings, SimulatedEngine(demo_nodes(), clock), before=demo.fill, ready=demo.begin)
        finally:
            demo.end()
            clock.close()


class _Demo:
    """The made-up people, submitting and cancelling as time goes by."""

    def __init__(self, speed: float, seed: int) -> None:
        self._speed, self._seed = speed, seed
        self._start = utc_now()
        self._past = LastMonth([], [])
        self._ending = threading.Event()
        self._users = {person.name: make_user(person, self._start) for person in USERS}

    def fill(self, store: Store) -> None:
        self._past = fill_store(store, self._seed, self._start)

    def begin(self, context: Context, url: str) -> None:
        _say_hello(context.settings.home, url, self._speed)
        threading.Thread(target=self._work, args=(context,), name="demo", daemon=True).start()
        threading.Thread(target=self._recall, args=(context,), name="demo-past", daemon=True).start()

    def end(self) -> None:
        self._ending.set()

    def _work(self, context: Context) -> None:
        for job in self._past.unfinished:
            self._submit(context, [job])
        began = time.monotonic()
        for at, jobs in groupby(generate_live_jobs(self._seed, self._start), key=_moment_and_array):
            wait = (at[0] - self._start).total_seconds() / self._speed - (time.monotonic() - began)
            if self._ending.wait(max(0.0, wait)):
                return
            self._submit(context, list(jobs))

    def _recall(self, context: Context) -> None:
        """What the last month used; a little at a time, as people are waiting."""
        month = StepRange.between(self._start - timedelta(days=_MONTH_DAYS), self._start)
        chunks = generate_usage_samples(self._past.job_runs(), demo_nodes(), month)
        while (some := dict(islice(chunks, _AT_ONCE))) and not self._ending.wait(0.005):
            context.samples.add_history(some)

    def _submit(self, context: Context, jobs: list[DemoJob]) -> None:
        caller = Caller(self._users[jobs[0].user], "socket", "demo")
        hurried = [replace(job, run_seconds=max(1.0, job.run_seconds / self._speed)) for job in jobs]
        try:
            submitted = submit_jobs(context, caller, [job.make_request() for job in hurried])
        except HeliostatError as error:
            log.warning("demo_submission_failed", error=str(error))
            return
        for job, job_id in zip(jobs, submitted.job_ids, strict=True):
            if job.cancel_after_seconds is not None:
                self._cancel_later(context, caller, job_id, job.cancel_after_seconds / self._speed)

    def _cancel_later(self, context: Context, caller: Caller, job_id: JobId, seconds: float) -> None:
        timer = threading.Timer(seconds, cancel_job, (context, caller, job_id))
        timer.daemon = True
        timer.start()


def _moment_and_array(job: DemoJob) -> tuple[datetime, str, str | None]:
    return job.submitted_at, job.user, job.array_key


def _say_hello(home: Home, url: str, speed: float) -> None:
    print(
        f"""
A hospital's cluster: 40 nodes, 100 GPUs, 40 people, and the last month of their jobs.
It is made up, runs {speed:.0f} times faster than life, and is gone when you press Ctrl-C.

  Address: {url}
  In another terminal:

    export HELIOSTAT_HOME={home.path}
    helio web          log in to its pages
    helio top          the cluster, live
    helio ps           who waits, who runs
    helio nodes        the machines and their GPUs
    helio stats --span month    what was used of them
    helio run --gpus 2 -- python train.py     join them
""",
        flush=True,
    )
