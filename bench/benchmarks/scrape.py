"""What one scrape of `/metrics` costs, from request to last byte, of real servers with simulated nodes.

The load of simulated GPUs is computed for each scrape, which no real engine does. Therefore rendering alone is
measured too, in time of one core, with nodes in memory.
Beside it stands one `squeue` with as many jobs on a real Slurm: what an exporter for Slurm asks at each scrape.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median

from bench.benchmarks.slurm_polling import fill_queue
from bench.cpu_usage import process_cpu_seconds
from bench.measurements import OUR_SYSTEM, Measurement
from bench.peers import PeerFailed
from bench.peers.heliostat import Heliostat
from bench.private_slurm import PrivateSlurm, SlurmNotStarted
from bench.settings import WORK_FOLDER, Settings, job_slots
from heliostat.client.transport import ApiRequest
from heliostat.engines.simulated.cluster import parse_nodes
from heliostat.metrics import render_families
from heliostat.models import Job, JobSpec, JobState, Resources
from heliostat.services.monitoring.cluster_metrics import collect_cluster

BENCHMARK = "scrape"
PEER = "squeue"
CACHE_SECONDS = 1.1  # a page is rendered again after a second
START_SECONDS = 300.0
JOB = Job(
    id=0,
    kind="batch",
    name="train",
    state=JobState.RUNNING,
    user="ann",
    unix_user="ann",
    project="vision",
    resources=Resources(1, 64, 1),
    spec=JobSpec(),
    submitted_at=datetime.now(UTC),
)


@dataclass(frozen=True)
class Cluster:
    nodes: str
    gpus: int
    gpu_jobs: int
    cpu_jobs: int

    @property
    def jobs(self) -> int:
        return self.gpu_jobs + self.cpu_jobs

    @property
    def description(self) -> str:
        return f"{self.gpus:,} GPUs, {self.jobs:,} running jobs"


CLUSTERS = (
    Cluster("12x8xA100,2x2xA100,40xcpu", 100, 100, 900),
    Cluster("1250x8xA100", 10_000, 10_000, 0),
)


class SimulatedCluster(Heliostat):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(WORK_FOLDER / "home-simulated")
        self._cluster = cluster

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        settings = f'[server]\nengine = "simulated"\nsimulated_nodes = "{self._cluster.nodes}"\n'
        (self.home / "cluster.toml").write_text(settings)
        super().start()

    def fill(self) -> None:
        """Start all jobs; they run longer than the measurement."""
        job = {"command": ["sleep", "864000"], "time": "10d", "cpus": 1, "memory": "64M"}
        bodies = [{**job, "gpus": 1}] * self._cluster.gpu_jobs + [job] * self._cluster.cpu_jobs
        self.client.submit_many(bodies)
        deadline = time.monotonic() + START_SECONDS
        while self.status()["jobs"].get("running", 0) < self._cluster.jobs:
            if time.monotonic() > deadline:
                raise PeerFailed(f"only {self.status()['jobs']} after {START_SECONDS:.0f} s")
            time.sleep(1)

    def scrape(self) -> bytes:
        response = self.client._transport.send(ApiRequest("GET", "/metrics", root=""))
        return bytes(response.body)


def measure(settings: Settings) -> Iterator[Measurement]:
    tries = max(20, settings.repeat)
    for cluster in CLUSTERS:
        yield _rendering(cluster, tries)
        heliostat = SimulatedCluster(cluster)
        try:
            heliostat.up()
            heliostat.fill()
            yield _scrapes(cluster, heliostat, tries)
        except PeerFailed as error:
            yield Measurement(BENCHMARK, cluster.description, OUR_SYSTEM, None, "ms", "lower", str(error))
        finally:
            heliostat.down()
    yield from _polls(tries)


def _rendering(cluster: Cluster, tries: int) -> Measurement:
    nodes = parse_nodes(cluster.nodes)
    gpus = [(node.name, gpu.uuid) for node in nodes for gpu in node.devices]
    jobs = [replace(JOB, id=number, node=node, devices=(gpu,)) for number, (node, gpu) in enumerate(gpus, 1)]
    jobs += [replace(JOB, id=number, node=nodes[-1].name) for number in range(len(jobs) + 1, cluster.jobs + 1)]
    times = []
    for _ in range(tries):
        began = time.thread_time()
        render_families(collect_cluster(nodes, jobs))
        times.append((time.thread_time() - began) * 1000)
    note = f"median, fastest {min(times):.1f} ms, time of one core"
    metric = f"{cluster.description}, rendering alone"
    return Measurement(BENCHMARK, metric, OUR_SYSTEM, median(times), "ms", "lower", note)


def _scrapes(cluster: Cluster, heliostat: SimulatedCluster, tries: int) -> Measurement:
    times, worked, pid = [], 0.0, heliostat.server_pids()["server"]
    for _ in range(tries):
        time.sleep(CACHE_SECONDS)
        before, began = process_cpu_seconds(pid), time.perf_counter()
        page = heliostat.scrape()
        times.append((time.perf_counter() - began) * 1000)
        worked += process_cpu_seconds(pid) - before
    series = sum(not line.startswith(b"#") for line in page.splitlines())
    cost = f"{worked * 1000 / tries:.0f} ms of cpu of the server"
    note = f"median, fastest {min(times):.1f} ms, {cost}; {len(page):,} bytes, {series:,} series"
    return Measurement(BENCHMARK, cluster.description, OUR_SYSTEM, median(times), "ms", "lower", note)


def _polls(tries: int) -> Iterator[Measurement]:
    slurm = PrivateSlurm(WORK_FOLDER / "slurm", job_slots())
    if missing := slurm.unavailable_reason():
        yield Measurement(BENCHMARK, "", PEER, None, "ms", "lower", f"no Slurm: {missing}")
        return
    try:
        slurm.up()
        queued = 0
        for cluster in CLUSTERS:
            fill_queue(slurm, cluster.jobs - queued)
            queued = cluster.jobs
            times = sorted(_poll_ms(slurm) for _ in range(tries))
            note = f"median, fastest {times[0]:.1f} ms; as many queued jobs, and nothing of nodes or GPUs"
            yield Measurement(BENCHMARK, cluster.description, PEER, median(times), "ms", "lower", note)
    except SlurmNotStarted as error:
        yield Measurement(BENCHMARK, "", PEER, None, "ms", "lower", f"Slurm did not start: {error}")
    finally:
        slurm.down()


def _poll_ms(slurm: PrivateSlurm) -> float:
    command = ["squeue", "--noheader", "--array", "--format=%A|%a|%T|%P|%u|%C|%m|%b"]
    began = time.perf_counter()
    subprocess.run(command, env=slurm.env, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - began) * 1000
