"""`helio monitoring setup` and the dashboards, with a real Prometheus, Alertmanager and node_exporter."""

import json
import math
import stat
from pathlib import Path

import pytest

import heliostat
from heliostat.errors import Conflict
from heliostat.loops.gpu_metrics import GpuMetricsReader
from heliostat.models import DeviceSample
from heliostat.monitoring.http_queries import get_json
from heliostat.provision.monitoring.check import check_monitoring, wait_until_scraped
from heliostat.provision.monitoring.setup import apply_setup, plan_setup
from integration.monitoring.conftest import Monitoring
from integration.running_server import wait_for

DASHBOARDS = Path(heliostat.__file__).parent / "monitoring" / "dashboards"
VALUES = {"$node": "gpu1", "$job": "7", "$project": "vision", "$__rate_interval": "10s"}


@pytest.fixture(scope="module", autouse=True)
def set_up(monitoring: Monitoring) -> None:
    monitoring.set_up()


def test_all_targets_are_scraped_and_alerts_have_a_receiver(monitoring: Monitoring) -> None:
    findings = wait_until_scraped(monitoring.site, 60)
    assert {finding.level for finding in findings} == {"ok"}, findings
    assert "scrapes 5 of 5 targets" in str(findings)


def test_a_second_setup_changes_nothing(monitoring: Monitoring) -> None:
    assert list(apply_setup(monitoring.site, monitoring.server.make_token)) == []
    assert {file.state for file in plan_setup(monitoring.site).files} == {"same"}


def test_only_prometheus_reads_the_secrets_and_no_plan_shows_them(monitoring: Monitoring) -> None:
    secrets = [monitoring.site.password_file, *map(monitoring.site.token_file, ("metrics", "alerts"))]
    for path in secrets:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.owner() == "prometheus"
        path.rename(path.with_suffix(".aside"))
        plan = plan_setup(monitoring.site)
        path.with_suffix(".aside").rename(path)
        assert path.read_text().strip() not in str(plan)


def test_alertmanager_refuses_requests_without_its_password(monitoring: Monitoring) -> None:
    assert get_json(f"{monitoring.site.alertmanager_url}/api/v2/alerts") is None


@pytest.mark.parametrize("path", sorted(DASHBOARDS.iterdir()), ids=lambda path: path.stem)
def test_every_query_of_a_dashboard_finds_series(monitoring: Monitoring, path: Path) -> None:
    queries = [target["expr"] for panel in json.loads(path.read_text())["panels"] for target in panel["targets"]]
    for query in queries:
        expression = query
        for name, value in VALUES.items():
            expression = expression.replace(name, value)
        wait_for(lambda expression=expression: _numbers(monitoring, expression), expression)


def test_the_dashboard_of_a_job_on_slurm_shows_the_gpus_of_dcgm_exporter(monitoring: Monitoring) -> None:
    panels = json.loads((DASHBOARDS / "job.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"] if "DCGM" in target["expr"]]
    assert len(queries) == 3
    for query in queries:
        wait_for(lambda query=query: _numbers(monitoring, query.replace("$job", "9")), query)


def test_the_usage_of_gpus_is_read_by_node_and_index(monitoring: Monitoring) -> None:
    reader = GpuMetricsReader(monitoring.site.prometheus_url, 10)
    wait_for(lambda: reader.refresh() or len(reader.readings()) == 2, "the readings")
    known = reader.readings()
    assert known["gpu1:0"] == DeviceSample(50.0, 9536.0, 250.0)
    assert known["gpu1:1"] == DeviceSample(90.0, 19072.0, 300.0)


def _numbers(monitoring: Monitoring, query: str) -> bool:
    values = [float(series["value"][1]) for series in monitoring.query(query)]
    return bool(values) and not any(map(math.isnan, values))


def test_an_alert_reaches_the_webhook_with_its_command(monitoring: Monitoring) -> None:
    wait_for(
        lambda: monitoring.query('ALERTS{alertname="HeliostatNodeDown", node="gpu2"}'), "the alert of node gpu2"
    )
    rules = monitoring.site.folder / "rules"
    rules.mkdir(exist_ok=True)
    # Prometheus needs some seconds to find Alertmanager again, and repeats what it could not send after a minute.
    rule = {"alert": "OfOurOwn", "expr": "heliostat_node_up == 0", "for": "8s"}
    rule["annotations"] = {"command": "helio nodes"}  # type: ignore[assignment]
    (rules / "own.yml").write_text(json.dumps({"groups": [{"name": "own", "rules": [rule]}]}))
    line = next(line for line in monitoring.processes if "prometheus.yml" in line)
    monitoring.processes[line].send_signal(1)  # read the configuration again
    found = wait_for(lambda: [one for one in monitoring.server.alerts if one["status"] == "firing"], "the alert")
    assert found[0]["labels"]["alertname"] == "OfOurOwn"
    assert found[0]["annotations"] == {"command": "helio nodes"}
    assert found[0]["labels"]["node"] == "gpu2"


def test_a_token_that_was_revoked_is_replaced(monitoring: Monitoring) -> None:
    del monitoring.server.tokens["metrics"]
    written = list(apply_setup(monitoring.site, monitoring.server.make_token))
    assert written == [f"Wrote {monitoring.site.token_file('metrics')}."]
    assert monitoring.site.token_file("metrics").read_text().strip() == monitoring.server.tokens["metrics"]


def test_programs_with_an_old_configuration_are_restarted(monitoring: Monitoring) -> None:
    config = monitoring.site.folder / "prometheus.yml"
    config.unlink()
    with pytest.raises(Conflict, match="prometheus runs with an old configuration") as stopped:
        list(apply_setup(monitoring.site, monitoring.server.make_token))
    assert "Restart it with the following command" in (stopped.value.hint or "")
    monitoring.start(stopped.value.fields["start"])
    assert list(apply_setup(monitoring.site, monitoring.server.make_token)) == []


def test_a_configuration_of_others_is_not_touched(monitoring: Monitoring) -> None:
    config = monitoring.site.folder / "alertmanager.yml"
    before = config.read_text()
    for text, words in (("route: {}\n", "was not written by Heliostat"), (before + "# mine\n", "edited by hand")):
        config.write_text(text)
        with pytest.raises(Conflict, match=words):
            list(apply_setup(monitoring.site, monitoring.server.make_token))
        assert config.read_text() == text
    config.write_text(before)


def test_what_does_not_respond_is_named_with_the_next_step(monitoring: Monitoring) -> None:
    line = next(line for line in monitoring.processes if "node-exporter" in line)
    monitoring.stop(line)
    found = wait_for(
        lambda: [one for one in check_monitoring(monitoring.site) if one.check == "node-exporter"], "the finding"
    )
    assert found[0].level == "warning"
    assert "Install prometheus-node-exporter on gpu1" in (found[0].hint or "")
    for line in list(monitoring.processes):
        monitoring.stop(line)
    (finding,) = check_monitoring(monitoring.site)
    assert (finding.level, finding.hint) == (
        "problem",
        "Run on the machine of the server, as root: helio monitoring setup",
    )
