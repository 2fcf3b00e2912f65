"""Metrics, health and logs of a whole server, read by real Prometheus tools."""

import http.client
import json
import shutil
import socket
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from heliostat.config import Home
from heliostat.config.pause_file import pause
from heliostat.metrics import MetricFamily
from heliostat.services.monitoring import families
from integration.running_server import Answer, RunningServer, wait_for

SETTINGS = """
[server]
simulate_gpus = "4xA100"
node_name = "localhost"
log_format = "json"
[monitoring]
metrics_address = "127.0.0.1:0"
node_exporter_port = 19100
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer(SETTINGS)
    yield server
    server.remove()


def metrics_url(server: RunningServer) -> str:
    url: str = json.loads((server.home / "server.json").read_text())["metrics_url"]
    return url


def get(url: str, headers: dict[str, str] | None = None) -> Answer:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request("GET", parts.path, headers=headers or {})
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def series(server: RunningServer) -> dict[str, float]:
    text = get(metrics_url(server)).body.decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    names = [name for name, _, _ in lines]
    assert len(names) == len(set(names))
    return {name: float(value) for name, _, value in lines}


def without_activity(found: dict[str, float]) -> set[str]:
    """Without what appears with the first request of a kind, and the first call of a loop."""
    return {name for name in found if not name.startswith(("heliostat_http", "heliostat_loop_last"))}


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: scripts/install-test-parts installs it")
    return found


def test_exactly_the_documented_metrics_are_exposed(server: RunningServer) -> None:
    exposed = {
        (found.name, found.type)
        for found in text_string_to_metric_families(get(metrics_url(server)).body.decode())
    }
    known = [family for family in vars(families).values() if isinstance(family, MetricFamily)]
    assert exposed == {(family.name.removesuffix("_total"), family.type) for family in known}


def test_promtool_finds_nothing_wrong(server: RunningServer) -> None:
    server.run(command=["true"], memory=64)
    page = get(metrics_url(server)).body
    done = subprocess.run([program("promtool"), "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_job_is_seen_while_it_runs_and_counted_when_it_ends(server: RunningServer) -> None:
    before = series(server)
    job = server.submit(command=["sleep", "600"], gpus=1, memory=64)
    wait_for(lambda: server.show(job)["state"] == "running", "the job to run")
    found = wait_for(
        lambda: (now := series(server))['heliostat_jobs{state="running"}'] == 1 and now, "its metrics"
    )
    (info,) = [name for name in found if name.startswith(f'heliostat_job_gpu_info{{job="{job}"')]
    uuid = info.split('uuid="')[1].partition('"')[0]
    assert found[f'heliostat_gpu_allocated{{node="localhost",uuid="{uuid}"}}'] == 1
    assert found['heliostat_project_allocated_gpus{project="default"}'] == 1
    server.ask("POST", f"/jobs/{job}/cancel")
    server.finished(job)
    ends = 'heliostat_job_ends_total{cause="cancelled"}'
    after = wait_for(lambda: (now := series(server)).get(ends, 0) > before.get(ends, 0) and now, "its end")
    assert info not in after
    assert after["heliostat_job_starts_total"] > before["heliostat_job_starts_total"]


def test_an_array_of_ten_thousand_waiting_jobs_adds_no_series(server: RunningServer) -> None:
    before = without_activity(series(server))
    answer = server.ask("POST", "/jobs", {"command": ["true"], "memory": 64, "array": "0-9999", "held": True})
    held = 'heliostat_jobs{state="held"}'
    after = wait_for(lambda: (now := series(server))[held] == 10_000 and now, "10,000 held jobs")
    assert without_activity(after) == before
    server.ask("POST", "/jobs/cancel", {"array_ids": [answer.json["array_id"]]})


def test_a_route_is_a_template_and_unknown_paths_and_methods_are_one_series(server: RunningServer) -> None:
    for number in (11, 12):
        server.ask("GET", f"/jobs/{number}/logs")
        server.ask("GET", f"/secret-{number}")
        server.ask(f"SECRET{number}", "/jobs")
    found = wait_for(
        lambda: (now := series(server)) and any("logs" in name for name in now) and now, "the requests"
    )
    assert not [name for name in found if "secret" in name.lower() or "/11" in name or "/12" in name]
    routes = [name for name in found if name.startswith("heliostat_http_request_duration_seconds_count")]
    assert any('route="/api/v1/jobs/{job_id}/logs"' in name for name in routes)
    assert any('method="GET",route="other",status_class="4xx"' in name for name in routes)


def test_at_the_api_metrics_need_a_login_and_a_token_of_scope_metrics_is_enough(server: RunningServer) -> None:
    token = server.ask("POST", "/tokens", {"name": "prometheus", "scope": "metrics"}).json["token"]
    login = {"Authorization": f"Bearer {token}"}
    assert get(f"{server.url}/metrics").status == 401
    assert get(f"{server.url}/metrics", {"Authorization": "Bearer helio_wrong"}).status == 401
    assert get(f"{server.url}/metrics", login).status == 200
    assert get(f"{server.url}/api/v1/monitoring/targets", login).status == 200
    assert get(f"{server.url}/api/v1/jobs", login).status == 403


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/status", "/api/v1/openapi.json", "/login", "/metrics/", "//metrics"]
)
def test_the_metrics_address_serves_nothing_else(server: RunningServer, path: str) -> None:
    base = metrics_url(server).removesuffix("/metrics")
    assert get(base + path).status == 404


def test_prometheus_scrapes_the_server_and_finds_the_exporters(server: RunningServer, tmp_path: Path) -> None:
    token = server.ask("POST", "/tokens", {"name": "real", "scope": "metrics"}).json["token"]
    address = urllib.parse.urlsplit(server.url).netloc
    port = free_port()
    (tmp_path / "prometheus.yml").write_text(
        f"""
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: heliostat
    static_configs: [{{targets: ["{address}"]}}]
    authorization: {{credentials: "{token}"}}
  - job_name: nodes
    http_sd_configs:
      - url: http://{address}/api/v1/monitoring/targets
        refresh_interval: 1s
        authorization: {{type: Bearer, credentials: "{token}"}}
"""
    )
    options = [
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with open(tmp_path / "log", "wb") as log:
        prometheus = subprocess.Popen([program("prometheus"), *options], stdout=log, stderr=log, cwd=tmp_path)
    log_text = (tmp_path / "log").read_text
    try:
        query = f"http://127.0.0.1:{port}/api/v1/query?query="
        up = wait_for(lambda: result(query + "up%7Bjob%3D%22heliostat%22%7D%3D%3D1"), "a scrape", log_text)
        assert up[0]["metric"]["instance"] == address
        assert result(query + "sum(heliostat_gpu_usable)")[0]["value"][1] == "4"
        found = wait_for(lambda: result(query + "up%7Bjob%3D%22node-exporter%22%7D"), "the exporters", log_text)
        assert found[0]["metric"] | {"__name__": "up"} == {
            "__name__": "up", "instance": "localhost:19100", "job": "node-exporter", "node": "localhost"
        }  # fmt: skip
    finally:
        prometheus.terminate()
        prometheus.wait(60)


def result(url: str) -> list[dict[str, Any]]:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        found: list[dict[str, Any]] = json.loads(connection.getresponse().read())["data"]["result"]
        return found
    except (OSError, ValueError):  # it is still starting
        return []
    finally:
        connection.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize("sent", ["run-7.A_b", "x" * 64])
def test_a_client_can_choose_the_id_of_its_request(server: RunningServer, sent: str) -> None:
    assert server.ask("GET", "/status", headers={"X-Request-Id": sent}).headers["x-request-id"] == sent


@pytest.mark.parametrize("sent", ["", "x" * 65, "a b", 'a"b', "a,b", "a%0ab", "é".encode().decode("latin-1")])
def test_any_other_id_is_replaced(server: RunningServer, sent: str) -> None:
    answer = server.ask("GET", "/status", headers={"X-Request-Id": sent})
    assert answer.status == 200
    assert len(answer.headers["x-request-id"]) == 32


def test_a_line_of_the_log_is_json_and_names_the_request(server: RunningServer) -> None:
    wrong = {"Authorization": "Basic bm9ib2R5Ondyb25n", "X-Request-Id": "wrong-login"}
    assert server.ask("GET", "/status", headers=wrong, tcp=True).status == 401
    lines = wait_for(lambda: [line for line in server.log.splitlines() if "login_failed" in line], "the line")
    entry = json.loads(lines[-1])
    assert (entry["event"], entry["level"], entry["request_id"]) == ("login_failed", "warning", "wrong-login")


def test_a_server_is_healthy_and_ready_without_a_login_unless_it_is_paused() -> None:
    server = RunningServer()
    try:
        for path in ("/healthz", "/readyz"):
            answer = get(server.url + path)
            assert (answer.status, answer.json) == (200, {"status": "ok", "problems": []})
        server.stop()
        pause(Home(server.home), "a drill")
        server.start()
        assert get(f"{server.url}/healthz").status == 200
        answer = get(f"{server.url}/readyz")
        assert answer.status == 503
        assert answer.json == {"status": "problem", "problems": ["Heliostat is paused: a drill."]}
        assert b"\nheliostat_paused 1\n" in get_over_socket(server).body
        assert server.ask("POST", "/resume", {}).status == 204
        assert get(f"{server.url}/readyz").status == 200
    finally:
        server.remove()


def get_over_socket(server: RunningServer) -> Answer:
    with server.raw_connection() as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        response = http.client.HTTPResponse(connection)
        response.begin()
        return Answer(response.status, dict(response.getheaders()), response.read())
