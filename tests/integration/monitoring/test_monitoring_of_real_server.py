"""Prometheus, Alertmanager and node_exporter around a running server, connected by `helio monitoring setup`."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench.private_slurm import find_free_ports

from heliostat.provision.monitoring.check import wait_until_scraped
from heliostat.provision.monitoring.site import PACKAGES, MonitoringSite
from integration.monitoring.conftest import Monitoring
from integration.running_server import RunningServer, wait_for


class ServerWithTokens:
    def __init__(self, server: RunningServer) -> None:
        self._server = server

    def make_token(self, scope: str) -> str:
        token: str = self._server.ask("POST", "/tokens", {"name": scope, "scope": scope}).json["token"]
        return token


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Monitoring]]:
    if missing := [name for name in PACKAGES if shutil.which(name) is None]:
        pytest.skip(f"{missing[0]} is not installed: scripts/install-test-parts installs it")
    if os.geteuid() != 0:
        pytest.skip("only root can set up the monitoring")
    ports = find_free_ports(3)
    folder = Path(tempfile.mkdtemp(prefix="helio-"))
    folder.chmod(0o755)  # Prometheus runs as a user of its own
    server = RunningServer(
        'server.node_name = "localhost"\nserver.simulate_gpus = "2xA100"\n'
        f"monitoring.node_exporter_port = {ports[2]}\nmonitoring.dcgm_exporter_port = 0\n"
    )
    site = replace(MonitoringSite(server.url, "localhost", True, str(folder), *ports), scrape_seconds=1)
    monitoring = Monitoring(site, ServerWithTokens(server))  # type: ignore[arg-type]
    try:
        monitoring.set_up()
        yield server, monitoring
    finally:
        for line in list(monitoring.processes):
            monitoring.stop(line)
        server.remove()
        shutil.rmtree(folder)


def test_the_server_and_its_node_are_scraped_with_the_tokens_of_the_setup(
    real: tuple[RunningServer, Monitoring],
) -> None:
    findings = wait_until_scraped(real[1].site, 60)
    assert {finding.level for finding in findings} == {"ok"}, findings
    assert "scrapes 4 of 4 targets" in str(findings)


def test_series_of_a_job_keep_its_number_and_are_joined_with_its_gpus(
    real: tuple[RunningServer, Monitoring],
) -> None:
    server, monitoring = real
    job = server.submit(command=["sleep", "600"], gpus=2)
    query = f'count(heliostat_job_gpu_info{{job="{job}"}} and on (uuid) heliostat_gpu_info{{node="localhost"}})'
    found = wait_for(lambda: monitoring.query(query), query, lambda: server.log)
    assert found[0]["value"][1] == "2"
    for query in ("cluster:heliostat_gpus_allocated:count == 2", 'node_memory_MemTotal_bytes{node="localhost"}'):
        wait_for(lambda query=query: monitoring.query(query), query)
    assert monitoring.query('ALERTS{alertstate="firing"}') == []
