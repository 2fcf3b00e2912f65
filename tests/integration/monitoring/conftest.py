"""Prometheus, Alertmanager and node_exporter of Debian, set up and started as `helio monitoring setup` says."""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from bench.private_slurm import find_free_ports

from heliostat.errors import Conflict
from heliostat.monitoring.http_queries import get_json
from heliostat.provision.monitoring.setup import apply_setup
from heliostat.provision.monitoring.site import PACKAGES, MonitoringSite
from integration.running_server import wait_for
from support.monitored_server import MonitoredServer, dcgm_exporter, monitored_server


@dataclass
class Monitoring:
    site: MonitoringSite
    server: MonitoredServer
    messages: list[str] = field(default_factory=list)
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def set_up(self) -> list[str]:
        """The messages of the last run, which found nothing to start."""
        while True:
            try:
                for message in apply_setup(self.site, self.server.make_token):
                    self.messages.append(message)
                return self.messages
            except Conflict as stopped:
                self.start(stopped.fields["start"])

    def start(self, line: str) -> None:
        if line in self.processes:
            self.stop(line)
        with open(f"{self.site.prefix}/log", "ab") as log:
            self.processes[line] = subprocess.Popen(shlex.split(line), stdout=log, stderr=log, cwd="/")
        port = next(word for word in line.split() if word.startswith("--web.listen-address")).rpartition(":")[2]
        wait_for(lambda: _is_listening(int(port)), line, lambda: Path(f"{self.site.prefix}/log").read_text())

    def stop(self, line: str) -> None:
        process = self.processes.pop(line)
        process.send_signal(signal.SIGTERM)
        process.wait(60)

    def query(self, expression: str) -> list[dict[str, Any]]:
        from urllib.parse import quote

        answer = get_json(f"{self.site.prometheus_url}/api/v1/query?query={quote(expression)}")
        assert answer is not None, expression
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found


@pytest.fixture(scope="module")
def monitoring() -> Iterator[Monitoring]:
    if missing := [name for name in PACKAGES if shutil.which(name) is None]:
        pytest.skip(f"{missing[0]} is not installed: scripts/install-test-parts installs it")
    if os.geteuid() != 0:
        pytest.skip("only root can set up the monitoring")
    folder = Path(tempfile.mkdtemp(prefix="helio-"))
    folder.chmod(0o755)  # Prometheus runs as a user of its own
    prometheus, alertmanager, exporter = find_free_ports(3)
    with monitored_server() as server, dcgm_exporter() as dcgm:
        server.targets = [{"targets": [dcgm], "labels": {"job": "dcgm-exporter", "node": "gpu1"}}]
        site = MonitoringSite(server.url, "gpu1", False, str(folder), prometheus, alertmanager, exporter, 1)
        started = Monitoring(site, server)
        yield started
        for line in list(started.processes):
            started.stop(line)
    shutil.rmtree(folder)


def _is_listening(port: int) -> bool:
    import socket

    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
