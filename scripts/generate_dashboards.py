"""Writes the Grafana dashboards of scripts/dashboards.py into src/heliostat/monitoring/dashboards.

python -m scripts.generate_dashboards

Plain dicts, not Grafana's Foundation SDK: these dashboards use few kinds of objects, for which the SDK needs more
code than this, and it is one package more to keep up to date.
"""

import json
from pathlib import Path
from typing import Any

from scripts.dashboards import DASHBOARDS, DATASOURCE, Dashboard, Panel

FOLDER = Path(__file__).parents[1] / "src" / "heliostat" / "monitoring" / "dashboards"
_COLUMNS = 24  # of Grafana's grid
_HEIGHTS = {"stat": 4, "timeseries": 8}


def render(dashboard: Dashboard) -> str:
    datasource = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    document = {
        "uid": f"heliostat-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["heliostat"],
        "schemaVersion": 39,
        "editable": False,
        "time": {"from": dashboard.span, "to": "now"},
        "refresh": "1m",
        "links": [
            {
                "type": "dashboards",
                "title": "Heliostat",
                "tags": ["heliostat"],
                "asDropdown": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [datasource, *dashboard.variables]},
        "panels": _place(dashboard.rows),
    }
    return json.dumps(document, indent=1) + "\n"


def _place(rows: tuple[tuple[Panel, ...], ...]) -> list[dict[str, Any]]:
    """Panels of a row share its width."""
    placed: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        width, height = _COLUMNS // len(row), max(_HEIGHTS[panel.kind] for panel in row)
        for column, panel in enumerate(row):
            position = {"x": column * width, "y": top, "w": width, "h": height}
            placed.append({"id": len(placed) + 1, "gridPos": position, **_panel(panel)})
        top += height
    return placed


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "expr": query, "legendFormat": legend, "datasource": DATASOURCE}
        for number, (legend, query) in enumerate(panel.queries.items())
    ]
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    if panel.kind == "timeseries":
        style = {"fillOpacity": 30, "stacking": {"mode": "normal"}} if panel.is_stacked else {"fillOpacity": 5}
        defaults["custom"] = {"lineWidth": 1, **style}
        options: dict[str, Any] = {"tooltip": {"mode": "multi", "sort": "desc"}}
    else:
        has_label = any("{{" in legend for legend in panel.queries)
        options = {"colorMode": "none", "textMode": "name" if has_label else "value"}
        options["reduceOptions"] = {"calcs": ["lastNotNull"]}
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": DATASOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(render(dashboard), encoding="utf-8")


if __name__ == "__main__":
    main()
