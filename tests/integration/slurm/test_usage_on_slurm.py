"""What jobs on Slurm have used comes into their report, also when the server or the accounting was away."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.private_slurm import find_free_ports

from integration.running_server import RunningServer, wait_for
from integration.unix_users import needs_root
from support.monitored_server import dcgm_exporter
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root
BUSY = "import time; kept = bytearray(150 << 20)\nwhile time.process_time() < 2: pass"


@pytest.fixture
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    server = RunningServer(
        'server.engine = "slurm"\nmonitoring.sample_seconds = 1\nslurm.sample_seconds = 1\n',
        {**os.environ, **slurm.env},
    )
    yield server
    server.remove()


def counted(server: RunningServer, job: int) -> dict[str, Any]:
    found: dict[str, Any] = wait_for(
        lambda: server.show(job)["accounting_usage"], "the accounting", lambda: server.log
    )
    return found


def test_what_a_job_used_is_counted_after_its_end_and_survives_a_killed_server(server: RunningServer) -> None:
    job = server.run(command=["python3", "-c", BUSY], gpus=2, cpus=2, memory="1G")
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait(120)
    server.start()
    used = counted(server, job["id"])
    assert 140 < used["memory_mib"] < 600
    assert 1 < used["cpu_seconds"] < 10
    assert used["gpu_seconds"] == 2 * used["elapsed_seconds"] > 0
    stats = server.ask("GET", f"/jobs/{job['id']}/stats").json
    assert stats["accounting_usage"] == used
    assert stats["summary"]["memory_mib"]["peak"] == used["memory_mib"]
    assert not list(server.home.glob("attempts/*.owed"))


def test_while_the_accounting_is_away_the_end_is_told_and_the_use_later(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    slurm.stop_daemon("slurmdbd")
    try:
        job = server.run(command=["sh", "-c", "sleep 2; exit 3"])
        assert (job["state"], job["exit_code"], job["accounting_usage"]) == ("failed", 3, None)
    finally:
        slurm.start_accounting()
    assert counted(server, job["id"])["elapsed_seconds"] >= 1


def test_nodes_say_how_busy_they_are(server: RunningServer) -> None:
    def series() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = server.ask("GET", "/nodes/n1/stats").json["series"]
        return found

    wait_for(series, "a look at the nodes", lambda: server.log)
    assert [one["name"] for one in series()] == ["cpu", "memory"]
    assert series()[0]["last"] is not None


def test_what_running_jobs_use_shows_while_they_run(server: RunningServer) -> None:
    """Also of the elements of an array, which Slurm numbers otherwise inside."""
    busy = ["sh", "-c", "while :; do :; done"]
    alone = server.submit(command=busy, cpus=1, memory="64M")
    body = {"command": busy, "cpus": 1, "memory": "64M", "array": "3-4"}
    elements = server.ask("POST", "/jobs", body).json["job_ids"]

    def shown(job: int) -> dict[str, Any]:
        series: list[dict[str, Any]] = server.ask("GET", f"/jobs/{job}/stats").json["series"]
        return {one["name"]: [value for value in one["mean"] if value is not None] for one in series}

    for job in (alone, *elements):
        wait_for(lambda job=job: shown(job).get("cpu") and max(shown(job)["cpu"]) > 0, f"job {job} uses cpus")  # type: ignore[misc]
        assert max(shown(job)["memory"]) > 0
        server.ask("POST", f"/jobs/{job}/cancel")


def test_the_usage_of_each_gpu_comes_from_prometheus(slurm: SlurmTestCluster, tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: scripts/install-test-parts installs it")
    (port,) = find_free_ports(1)
    own = f'prometheus_url = "http://127.0.0.1:{port}"\nsample_seconds = 1\n'
    settings = f'server.engine = "slurm"\n[monitoring]\n{own}'
    server = RunningServer(settings, {**os.environ, **slurm.env})
    try:
        nodes = [node["name"] for node in server.ask("GET", "/nodes").json["items"]]
        with dcgm_exporter() as exporter, running_prometheus(tmp_path, port, exporter, nodes):
            job = server.submit(command=["sleep", "600"], gpus=1)
            devices = wait_for(
                lambda: server.ask("GET", f"/jobs/{job}/stats").json["summary"]["devices"],
                "the usage of the GPU",
                lambda: server.log,
            )
        assert devices[0]["utilisation"]["peak"] in (50, 90)  # of the first GPU of the fixture, or of the second
        assert devices[0]["memory_mib"]["peak"] in (9536, 19072)
    finally:
        server.remove()


@contextmanager
def running_prometheus(folder: Path, port: int, exporter: str, nodes: list[str]) -> Iterator[None]:
    """It scrapes the exporter as that of each node."""
    targets = [{"targets": [exporter], "labels": {"node": node}} for node in nodes]
    job = {"job_name": "dcgm-exporter", "static_configs": targets}
    (folder / "prometheus.yml").write_text(
        json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]})
    )
    options = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": folder / "metrics",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    process = subprocess.Popen(["prometheus", *words], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()
