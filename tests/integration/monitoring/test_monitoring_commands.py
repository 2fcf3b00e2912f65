"""`helio monitoring` with a running server; alerts of a real Alertmanager become messages."""

import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.private_slurm import find_free_ports

from heliostat.provision.monitoring.site import PACKAGES
from integration.running_server import RunningServer, wait_for
from support.notification_receivers import HttpReceiver, running_http_receiver


@pytest.fixture(scope="module")
def receiver() -> Iterator[HttpReceiver]:
    with running_http_receiver() as started:
        yield started


@pytest.fixture(scope="module")
def server(receiver: HttpReceiver) -> Iterator[RunningServer]:
    if missing := [name for name in PACKAGES if shutil.which(name) is None]:
        pytest.skip(f"{missing[0]} is not installed: scripts/install-test-parts installs it")
    if os.geteuid() != 0:
        pytest.skip("only root can set up the monitoring")
    started = RunningServer(
        f'[notifications]\nhosts = ["127.0.0.1:{receiver.port}"]\nnetworks = ["127.0.0.0/8"]\n'
    )
    yield started
    started.remove()


def helio(server: RunningServer, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).parent / "helio"), "monitoring", *words]
    environment = {**os.environ, "HELIOSTAT_HOME": str(server.home)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_dry_run_shows_everything_and_changes_nothing(server: RunningServer) -> None:
    shown = helio(server, "setup", "--dry-run", "--prefix", "/srv/no/such")
    assert shown.returncode == 0, shown.stderr
    assert "+++ /srv/no/such/etc/prometheus/prometheus.yml" in shown.stdout
    assert f"targets: ['{server.url.removeprefix('http://')}']" in shown.stdout
    assert "prometheus-alertmanager listens on 127.0.0.1:9093 (with a password)." in shown.stdout
    assert not Path("/srv/no/such").exists()
    assert server.ask("GET", "/tokens").json["items"] == []


def test_without_an_answer_nothing_is_done(server: RunningServer) -> None:
    assert helio(server, "setup", "--prefix", "/srv/no/such").returncode != 0
    assert not Path("/srv/no/such").exists()


def test_without_systemd_a_setup_writes_everything_and_names_the_program_to_start(server: RunningServer) -> None:
    folder = server.folder / "trial"
    folder.mkdir()
    for _ in range(2):  # repeated, it keeps its tokens
        stopped = helio(server, "setup", "--yes", "--prefix", str(folder))
        assert stopped.returncode == 6, stopped.stderr
        assert "there is no systemd to start it" in stopped.stderr
        assert "setpriv --reuid=prometheus" in stopped.stderr
        items = server.ask("GET", "/tokens").json["items"]
        assert sorted(token["scope"] for token in items) == ["alerts", "metrics"]
    token = (folder / "etc/prometheus/heliostat-alerts.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    assert server.ask("POST", "/monitoring/alerts", {"alerts": []}, headers=headers, tcp=True).status == 204


def test_a_folder_with_other_signs_is_refused(server: RunningServer) -> None:
    assert "is not a valid folder" in helio(server, "setup", "--dry-run", "--prefix", "/srv/a b").stderr


def test_a_check_without_prometheus_names_the_next_step(server: RunningServer) -> None:
    if (checked := helio(server, "check", "--json")).returncode == 0:
        pytest.skip("a Prometheus runs on this machine")
    findings = json.loads(checked.stdout)["findings"]
    assert findings[0]["level"] == "problem"
    assert "helio monitoring setup" in findings[0]["hint"]
    assert "No admin gets alerts." in checked.stdout


def test_an_alert_of_alertmanager_arrives_at_the_admin(
    server: RunningServer, receiver: HttpReceiver, tmp_path: Path
) -> None:
    body = {"channel": "webhook", "address": receiver.url, "triggers": ["alerts"]}
    assert server.ask("POST", "/notifications", body).status == 201
    token = server.ask("POST", "/tokens", {"name": "a", "scope": "alerts"}).json["token"]
    hook = {"url": f"{server.url}/api/v1/monitoring/alerts"}
    hook["http_config"] = {"authorization": {"credentials": token}}  # type: ignore[assignment]
    config = {
        "route": {"receiver": "heliostat", "group_wait": "1s", "group_interval": "1s"},
        "receivers": [{"name": "heliostat", "webhook_configs": [hook]}],
    }
    (tmp_path / "alertmanager.yml").write_text(json.dumps(config))
    with running_alertmanager(tmp_path) as port:
        send(port, {"labels": {"alertname": "NodeDown", "severity": "critical"}, "annotations": ANNOTATIONS})
        wait_for(lambda: receiver.received, "the message", lambda: server.log)
        send(port, {"labels": {"alertname": "NodeDown", "severity": "critical"}, "endsAt": "2026-01-01T00:00:00Z"})
        wait_for(lambda: len(receiver.received) == 2, "the end", lambda: server.log)
    first, second = (request.json for request in receiver.received)
    assert first["text"] == "Alert: Node gpu1 is down."
    assert first["alerts"][0]["command"] == "helio node show gpu1"
    assert second["alerts"][0]["status"] == "resolved"


ANNOTATIONS = {"summary": "Node gpu1 is down.", "command": "helio node show gpu1"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"alerts": []}, 204),
        ({"version": "4", "alerts": [], "receiver": "x", "unknown": 1}, 204),
        ({"version": "5", "alerts": []}, 422),
        ({"alerts": [{}]}, 422),
        ({"alerts": [{"status": "firing", "fingerprint": "a" * 65, "startsAt": "2026-01-01T00:00:00Z"}]}, 422),
        ({"alerts": [{"status": "firing", "fingerprint": "a", "startsAt": "0001-01-01T00:00:00+14:00"}]}, 422),
        ({"alerts": [{}] * 1001}, 422),
    ],
)
def test_the_webhook_reads_known_fields_within_limits(server: RunningServer, body: object, status: int) -> None:
    assert server.ask("POST", "/monitoring/alerts", body).status == status


def test_a_token_for_alerts_does_nothing_else(server: RunningServer) -> None:
    token = server.ask("POST", "/tokens", {"name": "b", "scope": "alerts"}).json["token"]
    headers = {"Authorization": f"Bearer {token}"}
    assert server.ask("POST", "/monitoring/alerts", {"alerts": []}, headers=headers, tcp=True).status == 204
    for method, path in (("GET", "/jobs"), ("GET", "/status"), ("POST", "/jobs")):
        assert server.ask(method, path, {} if method == "POST" else None, headers=headers, tcp=True).status == 403


@contextmanager
def running_alertmanager(folder: Path) -> Iterator[int]:
    """Its port."""
    (port,) = find_free_ports(1)
    options = {
        "config.file": folder / "alertmanager.yml",
        "storage.path": folder,
        "cluster.listen-address": "",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    process = subprocess.Popen(["prometheus-alertmanager", *words], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: _is_ready(port), "Alertmanager")
        yield port
    finally:
        process.kill()
        process.wait()


def send(port: int, alert: dict[str, Any]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/api/v2/alerts", json.dumps([alert]), {"Content-Type": "application/json"})
    assert connection.getresponse().status == 200
    connection.close()


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", "/-/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
