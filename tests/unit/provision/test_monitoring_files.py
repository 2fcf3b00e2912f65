"""The files of the monitoring on a machine with systemd and Grafana."""

import hashlib
from pathlib import Path

import yaml

from heliostat.provision.managed_files import FileOrigin, compare_file, detect_origin
from heliostat.provision.monitoring.configuration import desired_files
from heliostat.provision.monitoring.site import MonitoringSite

SITE = MonitoringSite("http://127.0.0.1:8470", "head", is_node=True)
SECRETS = {"metrics": "helio_m", "alerts": "helio_a", "password": "secret"}


def files(site: MonitoringSite = SITE, defaults: frozenset[str] = frozenset()) -> dict[str, str]:
    return {str(file.path): file.text for file in desired_files(site, SECRETS, defaults, with_grafana=True)}


def test_services_listen_where_they_should_and_keep_the_options_of_the_admin() -> None:
    folder = "/etc/systemd/system"
    unit = files()[f"{folder}/prometheus.service.d/heliostat.conf"]
    assert unit.splitlines()[-2:] == [
        "ExecStart=",
        "ExecStart=/usr/bin/prometheus --config.file=/etc/prometheus/prometheus.yml "
        "--storage.tsdb.path=/var/lib/prometheus/metrics2 --web.listen-address=127.0.0.1:9090 $ARGS",
    ]
    assert "127.0.0.1:9093" in files()[f"{folder}/prometheus-alertmanager.service.d/heliostat.conf"]


def test_a_machine_that_is_a_node_is_scraped_once() -> None:
    own = "/etc/prometheus/prometheus.yml"
    assert "9100" not in files()[own]
    other = files(MonitoringSite("http://127.0.0.1:8470", "head", is_node=False))[own]
    jobs = {job["job_name"]: job for job in yaml.safe_load(other)["scrape_configs"]}
    assert jobs["node-exporter"]["static_configs"] == [{"targets": ["127.0.0.1:9100"], "labels": {"node": "head"}}]


def test_grafana_gets_a_data_source_and_all_dashboards() -> None:
    texts = files()
    source = yaml.safe_load(texts["/etc/grafana/provisioning/datasources/heliostat.yml"])["datasources"][0]
    assert source["url"] == "http://127.0.0.1:9090"
    provider = yaml.safe_load(texts["/etc/grafana/provisioning/dashboards/heliostat.yml"])["providers"][0]
    found = {path for path in texts if path.startswith(provider["options"]["path"])}
    assert {Path(path).stem for path in found} == {"cluster", "node", "job", "project", "server"}


def test_no_secret_is_outside_the_files_for_secrets() -> None:
    secret = [path for path, text in files().items() if any(one in text for one in SECRETS.values())]
    assert sorted(Path(path).suffix for path in secret) == [".password", ".token", ".token"]


def test_the_same_password_gives_the_same_file() -> None:
    assert files() == files()


def test_the_default_of_a_package_is_replaced_and_an_edited_one_is_not(tmp_path: Path) -> None:
    site = MonitoringSite("http://127.0.0.1:8470", "head", True, str(tmp_path))
    path = tmp_path / "etc/prometheus/prometheus.yml"
    path.parent.mkdir(parents=True)
    defaults = frozenset({hashlib.md5(b"global: {}\n", usedforsecurity=False).hexdigest()})
    desired = next(file for file in desired_files(site, SECRETS, defaults, False) if file.path == path)
    path.write_text("global: {}\n")
    assert compare_file(desired).state == "different"
    path.write_text("global: {scrape_interval: 1s}\n")
    assert compare_file(desired).state == "foreign"
    assert detect_origin(desired.text) is FileOrigin.OURS
