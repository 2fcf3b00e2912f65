"""Setup of the monitoring on this machine: packages, files, tokens, daemons. Repeatable.

What is already so is skipped; an interrupted setup is repeated. All checks run before the first change.
"""

import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from heliostat.errors import Forbidden, Invalid
from heliostat.monitoring.http_queries import get_json, is_successful
from heliostat.provision.managed_files import (
    DesiredFile,
    FileDifference,
    check_no_foreign_files,
    compare_file,
    make_folder,
    read_file,
    write_file,
)
from heliostat.provision.monitoring.configuration import ALERTMANAGER_USER, desired_files
from heliostat.provision.monitoring.site import (
    ALERTMANAGER,
    NODE_EXPORTER,
    PACKAGES,
    PROMETHEUS,
    TOKEN_SCOPES,
    UNIX_USER,
    MonitoringSite,
)
from heliostat.provision.setup_host import Daemon, SetupHost

_PLACEHOLDER = "(created by the setup)"
_MOVE_HINT = "To keep its content, move it to rules/ or targets/ beside it; then move the file away:"
_GRAFANA = {"grafana-server": "grafana"}
_PREFIX = re.compile(r"(/[A-Za-z0-9_.-]+)*")

MakeToken = Callable[[str], str]
"""A new token of this scope, of an admin."""


@dataclass(frozen=True)
class SetupPlan:
    packages: list[str]  # missing ones
    files: list[FileDifference]
    ports: dict[str, str]  # program: where it listens
    has_grafana: bool  # whether it is installed or can be


def plan_setup(site: MonitoringSite) -> SetupPlan:
    """What `apply_setup` would do. Changes nothing."""
    host = _host(site)
    with_grafana = _has_grafana(host)
    ports = {
        PROMETHEUS: f"127.0.0.1:{site.prometheus_port}",
        ALERTMANAGER: f"127.0.0.1:{site.alertmanager_port} (with a password)",
        NODE_EXPORTER: f"*:{site.node_exporter_port}",
        **({"grafana": "*:3000"} if with_grafana else {}),
    }
    files = _desired_files(host, site, _existing_secrets(site), with_grafana)
    return SetupPlan(
        _missing_packages(host, with_grafana), [compare_file(file) for file in files], ports, with_grafana
    )


def apply_setup(site: MonitoringSite, make_token: MakeToken) -> Iterator[str]:
    """Yields a message for each step that changed something. Raises, with a hint, if it cannot continue."""
    if os.geteuid() != 0:
        raise Forbidden("Only root can set up the monitoring.", "Run it as root; --dry-run works without root.")
    host = _host(site)
    with_grafana = _has_grafana(host)
    planned = _desired_files(host, site, _existing_secrets(site), with_grafana)
    check_no_foreign_files(planned, _MOVE_HINT, _MOVE_HINT)
    if missing := _missing_packages(host, with_grafana):
        host.install(missing)
        yield f"Installed {', '.join(missing)}."
    _make_folders(site, planned)
    existing = _existing_secrets(site)
    created = {
        scope: make_token(scope) for scope in TOKEN_SCOPES if not _is_accepted(site, scope, existing[scope])
    }
    if existing["password"] == _PLACEHOLDER:
        created["password"] = secrets.token_urlsafe(32)
    written = list(filter(None, map(write_file, _desired_files(host, site, existing | created, with_grafana))))
    yield from written
    _check_configuration(host, site)
    for daemon in site.daemons():
        yield from _start_or_restart(host, site, daemon, created.get("password") or existing["password"])
    if with_grafana:
        yield from _start_grafana(host, any(str(site.grafana_folder) in message for message in written))


def _host(site: MonitoringSite) -> SetupHost:
    if not _PREFIX.fullmatch(site.prefix) or ".." in site.prefix:
        raise Invalid(
            f"{site.prefix!r} is not a valid folder.", "Use an absolute path of letters, digits, _ . and -."
        )
    return SetupHost(site.prefix)


def _has_grafana(host: SetupHost) -> bool:
    """Debian has no package of it; its makers have, in a package source that admins add."""
    if not host.missing_packages(_GRAFANA):
        return True
    policy = host.try_run(["apt-cache", "policy", "grafana"]) or ""
    return "Candidate: " in policy and "Candidate: (none)" not in policy


def _missing_packages(host: SetupHost, with_grafana: bool) -> list[str]:
    return host.missing_packages(PACKAGES | _GRAFANA if with_grafana else PACKAGES)


def _desired_files(
    host: SetupHost, site: MonitoringSite, known: dict[str, str], with_grafana: bool
) -> list[DesiredFile]:
    conffiles = host.try_run(["dpkg-query", "-W", "-f=${Conffiles}\n", PROMETHEUS, ALERTMANAGER]) or ""
    defaults = frozenset(line.split()[1] for line in conffiles.splitlines() if len(line.split()) == 2)
    return desired_files(site, known, defaults, with_grafana)


def _existing_secrets(site: MonitoringSite) -> dict[str, str]:
    paths = {"password": site.password_file, **{scope: site.token_file(scope) for scope in TOKEN_SCOPES}}
    return {name: _read_secret(path) or _PLACEHOLDER for name, path in paths.items()}


def _read_secret(path: Path) -> str:
    try:
        return (read_file(path) or "").strip()
    except PermissionError:
        return ""


def _is_accepted(site: MonitoringSite, scope: str, token: str) -> bool:
    if token == _PLACEHOLDER:
        return False
    if scope == "alerts":
        return is_successful(f"{site.server_url}/api/v1/monitoring/alerts", token, b'{"alerts": []}')
    return is_successful(f"{site.server_url}/api/v1/status", token)


def _make_folders(site: MonitoringSite, planned: list[DesiredFile]) -> None:
    for folder in dict.fromkeys(file.path.parent for file in planned):
        if not folder.exists():
            make_folder(folder, "root", 0o755)
    for name in ("metrics2", "alertmanager"):
        if not (site.state_folder / name).exists():
            make_folder(site.state_folder / name, UNIX_USER, 0o755)


def _check_configuration(host: SetupHost, site: MonitoringSite) -> None:
    host.run(["promtool", "check", "config", f"{site.folder}/prometheus.yml"])
    host.run(["amtool", "check-config", f"{site.folder}/alertmanager.yml"])


def _start_or_restart(host: SetupHost, site: MonitoringSite, daemon: Daemon, password: str) -> Iterator[str]:
    def started_at() -> float | None:
        return _started_at(site, daemon.name, password)

    running_since = started_at()
    if running_since is None:
        yield host.start_daemon(daemon, lambda: started_at() is not None)
    elif any(path.stat().st_mtime > running_since for path in _files_of(site, daemon.name) if path.exists()):
        yield host.start_daemon(daemon, lambda: started_at() is not None, "runs with an old configuration")


def _started_at(site: MonitoringSite, program: str, password: str) -> float | None:
    """Seconds since 1970; None: it does not answer. node_exporter has no configuration that could be old."""
    if program == NODE_EXPORTER:
        return float("inf") if is_successful(f"http://127.0.0.1:{site.node_exporter_port}/metrics") else None
    if program == ALERTMANAGER:
        status = get_json(f"{site.alertmanager_url}/api/v2/status", password=(ALERTMANAGER_USER, password))
        return _seconds(status["uptime"]) if status else None
    status = get_json(f"{site.prometheus_url}/api/v1/status/runtimeinfo")
    return _seconds(status["data"]["startTime"]) if status else None


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _files_of(site: MonitoringSite, program: str) -> tuple[Path, ...]:
    unit = site.folder.parent / "systemd" / "system" / f"{program}.service.d" / "heliostat.conf"
    names = {
        PROMETHEUS: ("prometheus.yml", "heliostat-rules.yml"),
        ALERTMANAGER: ("alertmanager.yml", "heliostat-alertmanager-web.yml"),
    }
    return (unit, *(site.folder / name for name in names.get(program, ())))


def _start_grafana(host: SetupHost, has_new_files: bool) -> Iterator[str]:
    def is_up() -> bool:
        return get_json("http://127.0.0.1:3000/api/health") is not None

    if has_new_files or not is_up():
        yield host.start_daemon(Daemon("grafana-server", "grafana-server", ("grafana-server",)), is_up)
