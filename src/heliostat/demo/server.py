"""`helio demo`: a temporary simulated cluster with a month of history and users who submit jobs.

Run times of new jobs are divided by the speed factor, so that hours pass in minutes. All times shown are real.
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
from heliostat.engines.simulated.clock import RealClock
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
_SERIES_PER_WRITE = 20


def run_demo(port: int = 0, speed: float = DEFAULT_SPEED, seed: int = 1) -> None:
    """Serve until interrupted. All data is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="heliostat-demo-") as folder:
        home = Home(Path(folder))
        settings = Settings(
            home,
            server=ServerSettings(port=port, engine="simulated"),
            auth=AuthSettings(default_department="visitors", default_project="tour"),
        )
        demo = _Demo(speed, seed)
        clock = RealClock()
        try:
            serve(settings, SimulatedEngine(demo_nodes(), clock), before=demo.fill, ready=demo.begin)
        finally:
            demo.end()
            clock.close()


class _Demo:
    """The synthetic users, who submit and cancel jobs over time."""

    def __init__(self, speed: float, seed: int) -> None:
        self._speed, self._seed = speed, seed
        self._start = utc_now()
        self._past = LastMonth([], [])
        self._ending = threading.Event()
        self._users = {person.name: make_user(person, self._start) for person in USERS}

    def fill(self, store: Store) -> None:
        self._past = fill_store(store, self._seed, self._start)

    def begin(self, context: Context, url: str) -> None:
        _print_welcome(context.settings.home, url, self._speed)
        threading.Thread(target=self._submit_jobs, args=(context,), name="demo", daemon=True).start()
        threading.Thread(target=self._add_past_usage, args=(context,), name="demo-past", daemon=True).start()

    def end(self) -> None:
        self._ending.set()

    def _submit_jobs(self, context: Context) -> None:
        for job in self._past.unfinished:
            self._submit(context, [job])
        began = time.monotonic()
        for key, jobs in groupby(generate_live_jobs(self._seed, self._start), key=_submission_key):
            wait = (key[0] - self._start).total_seconds() / self._speed - (time.monotonic() - began)
            if self._ending.wait(max(0.0, wait)):
                return
            self._submit(context, list(jobs))

    def _add_past_usage(self, context: Context) -> None:
        """Adds the usage samples of the last month in small portions: the server must stay responsive."""
        month = StepRange.between(self._start - timedelta(days=_MONTH_DAYS), self._start)
        chunks = generate_usage_samples(self._past.job_runs(), demo_nodes(), month)
        while (series := dict(islice(chunks, _SERIES_PER_WRITE))) and not self._ending.wait(0.005):
            context.samples.add_history(series)

    def _submit(self, context: Context, jobs: list[DemoJob]) -> None:
        caller = Caller(self._users[jobs[0].user], "socket", "demo")
        scaled = [replace(job, run_seconds=max(1.0, job.run_seconds / self._speed)) for job in jobs]
        try:
            submitted = submit_jobs(context, caller, [job.make_request() for job in scaled])
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


def _submission_key(job: DemoJob) -> tuple[datetime, str, str | None]:
    """The same for jobs that are submitted together."""
    return job.submitted_at, job.user, job.array_key


def _print_welcome(home: Home, url: str, speed: float) -> None:
    print(
        f"""
A simulated hospital cluster: 40 nodes, 100 GPUs, 40 users, and their jobs of the last month.
Jobs run {speed:.0f} times faster than real ones. Ctrl-C stops the demo and deletes its data.

  Address: {url}
  In another terminal:

    export HELIOSTAT_HOME={home.path}
    helio web                                 log in to the web pages
    helio top                                 live view of the cluster
    helio ps                                  waiting and running jobs
    helio nodes                               nodes and their GPUs
    helio stats --span month                  usage of the last month
    helio run --gpus 2 -- python train.py     submit a job of your own
""",
        flush=True,
    )
