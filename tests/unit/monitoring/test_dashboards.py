"""The dashboards of Grafana: generated, and with metrics that exist."""

import json
import re
from pathlib import Path

import pytest
import yaml
from scripts.dashboards import DASHBOARDS, Dashboard
from scripts.generate_dashboards import FOLDER, render

CASES = Path(__file__).parents[2] / "cases" / "monitoring"
RULES = FOLDER.parent / "rules.yml"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_a_dashboard_is_what_the_script_writes(dashboard: Dashboard) -> None:
    text = (FOLDER / f"{dashboard.name}.json").read_text(encoding="utf-8")
    assert text == render(dashboard), "run: python -m scripts.generate_dashboards"


def test_no_file_is_left_of_a_dashboard_that_was_removed() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {dashboard.name for dashboard in DASHBOARDS}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_panels_do_not_overlap(dashboard: Dashboard) -> None:
    places = [panel["gridPos"] for panel in json.loads(render(dashboard))["panels"]]
    fields = [
        (column, row)
        for at in places
        for column in range(at["x"], at["x"] + at["w"])
        for row in range(at["y"], at["y"] + at["h"])
    ]
    assert len(fields) == len(set(fields))
    assert max(column for column, _ in fields) < 24


def test_the_fixture_has_the_metrics_and_labels_that_are_documented() -> None:
    page = (CASES.parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(heliostat_\w+)(?:\{([\w,]+)\})?` \|", page, re.MULTILINE)
    documented = {name: set(labels.split(",")) - {""} for name, labels in rows}
    exposed: dict[str, set[str]] = {}
    for line in (CASES / "heliostat.prom").read_text().splitlines():
        if not line.startswith("#"):
            name = re.sub("_(bucket|sum|count)$", "", re.split(r"[{ ]", line)[0])
            exposed.setdefault(name, set()).update(re.findall(r"(\w+)=", line))
    assert {name: labels - {"le"} for name, labels in exposed.items()} == documented


def test_dashboards_and_rules_use_no_metric_of_heliostat_that_does_not_exist() -> None:
    exposed = set(re.findall(r"^# TYPE (\w+)", (CASES / "heliostat.prom").read_text(), re.MULTILINE))
    text = "".join(path.read_text() for path in (*FOLDER.iterdir(), RULES))
    used = {re.sub("_(bucket|count)$", "", name) for name in re.findall(r"(?<![:\w])heliostat_\w+", text)}
    assert used <= exposed


def test_dashboards_use_only_recorded_series_that_the_rules_record() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    text = "".join(path.read_text() for path in FOLDER.iterdir())
    assert set(re.findall(r"\w+:heliostat_\w+:\w+", text)) == recorded
