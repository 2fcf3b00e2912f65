"""Checks whether Prometheus runs, evaluates its rules, and reaches Heliostat, the exporters and Alertmanager."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heliostat.monitoring.http_queries import get_json
from heliostat.provision.managed_files import read_file
from heliostat.provision.monitoring.configuration import ALERTMANAGER_USER
from heliostat.provision.monitoring.site import MonitoringSite

_SETUP = "Run on the machine of the server, as root: helio monitoring setup"
_EXPORTERS = {"node-exporter": "prometheus-node-exporter", "dcgm-exporter": "dcgm-exporter"}


@dataclass(frozen=True)
class Finding:
    check: str
    level: str  # ok, warning, problem
    message: str
    hint: str | None = None


def check_monitoring(site: MonitoringSite) -> list[Finding]:
    if get_json(f"{site.prometheus_url}/api/v1/status/runtimeinfo") is None:
        message = f"Prometheus does not respond at {site.prometheus_url}."
        return [Finding("prometheus", "problem", message, _SETUP)]
    return [*_rules(site), *_targets(site), *_alertmanager(site)]


def wait_until_scraped(site: MonitoringSite, seconds: float) -> list[Finding]:
    """The findings once each target was scraped: new ones are scraped within the interval."""
    deadline = time.monotonic() + seconds
    while True:
        targets = _active_targets(site)
        is_new = not targets or any(target["health"] == "unknown" for target in targets)
        if time.monotonic() > deadline or not (is_new or _first_alertmanager(site) is None):
            return check_monitoring(site)
        time.sleep(0.2)


def _rules(site: MonitoringSite) -> Iterator[Finding]:
    answer = get_json(f"{site.prometheus_url}/api/v1/rules") or {"data": {"groups": []}}
    rules = [rule for group in answer["data"]["groups"] for rule in group["rules"]]
    if not any(rule["name"] == "HeliostatDown" for rule in rules):
        yield Finding("rules", "problem", "Prometheus has not loaded the rules of Heliostat.", _SETUP)
    elif broken := [rule for rule in rules if rule["health"] == "err"]:
        first = f"{broken[0]['name']}: {broken[0].get('lastError', '')}"
        message = f"{len(broken)} of {len(rules)} rules fail; {first}."
        yield Finding("rules", "problem", message, "Compare the versions of Heliostat and Prometheus.")
    else:
        yield Finding("rules", "ok", f"Prometheus evaluates {len(rules)} rules.")


def _targets(site: MonitoringSite) -> Iterator[Finding]:
    targets = _active_targets(site)
    down = [target for target in targets if target["health"] != "up"]
    if not any(target["labels"].get("job") == "heliostat" for target in targets):
        yield Finding("targets", "problem", "Prometheus does not scrape Heliostat.", _SETUP)
    if up := len(targets) - len(down):
        yield Finding("targets", "ok", f"Prometheus scrapes {up} of {len(targets)} targets.")
    yield from map(_down, down)


def _down(target: dict[str, Any]) -> Finding:
    job, node = target["labels"].get("job", ""), target["labels"].get("node", "")
    message = f"{target['scrapeUrl']} does not respond: {target['lastError'] or 'not scraped yet'}."
    if job in _EXPORTERS:
        hint = f"Install {_EXPORTERS[job]} on {node}; its port must be open for this machine."
        return Finding(job, "warning", message, hint)
    return Finding(job, "problem", message, _SETUP)


def _alertmanager(site: MonitoringSite) -> Iterator[Finding]:
    url = _first_alertmanager(site)
    if url is None:
        yield Finding("alertmanager", "problem", "Prometheus has no Alertmanager to send alerts to.", _SETUP)
        return
    try:
        password = (read_file(site.password_file) or "").strip()
    except PermissionError:
        yield Finding(
            "alertmanager", "warning", "Only root can check Alertmanager.", "sudo helio monitoring check"
        )
        return
    if get_json(f"{site.alertmanager_url}/api/v2/status", password=(ALERTMANAGER_USER, password)) is None:
        message = f"Alertmanager does not respond at {site.alertmanager_url}, or refuses its password."
        yield Finding("alertmanager", "problem", message, _SETUP)
    else:
        yield Finding("alertmanager", "ok", f"Prometheus sends alerts to {url}.")


def _active_targets(site: MonitoringSite) -> list[dict[str, Any]]:
    answer = get_json(f"{site.prometheus_url}/api/v1/targets?state=active")
    return answer["data"]["activeTargets"] if answer else []


def _first_alertmanager(site: MonitoringSite) -> str | None:
    answer = get_json(f"{site.prometheus_url}/api/v1/alertmanagers")
    active = answer["data"]["activeAlertmanagers"] if answer else []
    return active[0]["url"] if active else None
