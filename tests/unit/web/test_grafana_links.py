"""Links to dashboards of Grafana."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from heliostat.config import Home, Settings, load_settings
from heliostat.config.sections import MonitoringSettings
from heliostat.errors import Invalid
from heliostat.monitoring import __file__ as package_file
from heliostat.web.grafana import job_dashboard_url, node_dashboard_url
from unit.services.site import a_job

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = a_job(7, AT)


def settings(url: str | None) -> Settings:
    return replace(Settings(Home(Path("/nowhere"))), monitoring=MonitoringSettings(grafana_url=url))


def test_the_link_of_a_job_has_its_time_range() -> None:
    own = settings("https://lab.example.org/grafana/")
    running = replace(JOB, started_at=AT)
    base = "https://lab.example.org/grafana/d/heliostat-job/job?var-job=7&from=1772366400000&to="
    assert job_dashboard_url(own, running) == f"{base}now"
    assert job_dashboard_url(own, replace(running, ended_at=AT)) == f"{base}1772366400000"


def test_without_grafana_or_before_the_start_there_is_no_link() -> None:
    assert job_dashboard_url(settings(None), replace(JOB, started_at=AT)) == ""
    assert job_dashboard_url(settings("https://g"), JOB) == ""
    assert node_dashboard_url(settings(None), "n1", 7) == ""


def test_a_name_cannot_add_parameters_to_a_link() -> None:
    link = node_dashboard_url(settings("https://g"), "n1&to=0#/../x?", 7)
    assert parse_qs(urlsplit(link).query) == {"var-node": ["n1&to=0#/../x?"], "from": ["now-7d"], "to": ["now"]}
    assert urlsplit(link).path == "/d/heliostat-node/node"


@pytest.mark.parametrize("name", ["job", "node"])
def test_the_dashboard_of_a_link_exists(name: str) -> None:
    text = (Path(package_file).parent / "dashboards" / f"{name}.json").read_text()
    assert f'"uid": "heliostat-{name}"' in text
    assert f'"name": "{name}"' in text


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://g/?x=1", "https://user:pw@g", "//g", "https://g/\\n"]
)
def test_an_address_that_is_no_base_of_links_is_refused(tmp_path: Path, url: str) -> None:
    (tmp_path / "cluster.toml").write_text(f'[monitoring]\ngrafana_url = "{url}"\n')
    with pytest.raises(Invalid, match="grafana_url"):
        load_settings(Home(tmp_path))
