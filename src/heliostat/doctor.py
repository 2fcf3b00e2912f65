"""Checks of an installation (`helio doctor`): data directory, disk, database, port, nodes and GPUs."""

import os
import shutil
import socket
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from heliostat.auth.client_address import can_identify_local_users
from heliostat.config import Home, ServerSettings, Settings
from heliostat.config.file_system import SHARED_DATABASE_HINT, check_database_folder
from heliostat.config.load import list_changed_settings
from heliostat.config.pause_file import find_pause
from heliostat.engines.contract import Finding
from heliostat.engines.factory import examine_engine, examine_environments, read_local_nodes
from heliostat.errors import HeliostatError
from heliostat.missing_database import require_database_of_jobs
from heliostat.models import Device, Node, NodeState

_LOW_BYTES = 5 * 2**30
_EMPTY_BYTES = 500 * 2**20


def check_installation(settings: Settings, nodes: Sequence[Node] | None = None) -> list[Finding]:
    """All findings, including "ok". The server passes its nodes; without them they are probed here."""
    home = settings.home
    findings = [*_home(home), *_pause(home), *_disk(home), *_database(home), *_web(settings.server)]
    if nodes is not None:
        findings += _config_file(settings)
    else:
        findings += _port(settings.server)
        nodes = read_local_nodes(settings)
    return [*findings, *_nodes(nodes), *examine_engine(settings)]


def check_environments(settings: Settings) -> list[Finding]:
    """What prevents environments that all users share. Empty: nothing."""
    return examine_environments(settings)


def _home(home: Home) -> Iterator[Finding]:
    path = home.path
    if not path.is_dir():
        yield Finding("data directory", "warning", f"{path} does not exist yet.", "`helio up` creates it.")
        return
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(
            "permissions",
            "problem",
            f"You cannot write to {path}.",
            "Run as its owner, or set HELIOSTAT_HOME.",
        )
        return
    if loose := [file for file in (home.database, home.attempts) if _open_to_others(file)]:
        names = " ".join(map(str, loose))
        yield Finding("permissions", "problem", f"Other users can read {names}.", f"chmod -R go-rwx {names}")
    elif os.geteuid() == 0 and (closed := _closed_parent(path)):
        hint = f"chmod a+x {closed}, or choose another HELIOSTAT_HOME."
        yield Finding(
            "permissions",
            "problem",
            f"Other users' jobs cannot reach their logs: other users cannot enter {closed}.",
            hint,
        )
    else:
        yield Finding("permissions", "ok", f"{path} is writable and not open to other users.")
    if os.geteuid() != 0:
        yield Finding(
            "users",
            "warning",
            "Heliostat does not run as root, so only you can use it.",
            "Run it as root to serve all users of this machine; each job then runs as its own user.",
        )


def _pause(home: Home) -> Iterator[Finding]:
    if paused := find_pause(home):
        message = f"Heliostat is paused: {paused.reason}. No job starts."
        yield Finding("pause", "problem", message, "helio resume")


def _disk(home: Home) -> Iterator[Finding]:
    path = home.path
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    message = f"{free / 2**30:.1f} GiB free for {home.path}."
    if free < _EMPTY_BYTES:
        yield Finding(
            "disk", "problem", message, "Jobs cannot start without free space: remove files on that disk."
        )
    elif free < _LOW_BYTES:
        yield Finding("disk", "warning", message, "Remove files before the disk is full; job logs are in jobs/.")
    else:
        yield Finding("disk", "ok", message)


def _database(home: Home) -> Iterator[Finding]:
    path = home.database
    try:
        cause = check_database_folder(home)
    except HeliostatError as error:
        cause = error.message
    if cause:
        yield Finding("database", "problem", cause, SHARED_DATABASE_HINT)
    verdict = _damage(path) if path.exists() else None
    if verdict:
        hint = "Stop Heliostat, keep a copy of the file, and restore a backup or run sqlite3's .recover."
        yield Finding("database", "problem", f"{path}: {verdict}", hint)
        return
    try:
        require_database_of_jobs(home)
    except HeliostatError as error:
        yield Finding("database", "problem", error.message, error.hint)
    except PermissionError:
        return  # reported by _home
    else:
        if path.exists():
            yield Finding("database", "ok", f"{path} is intact ({path.stat().st_size / 2**20:.1f} MiB).")


def _damage(path: Path) -> str | None:
    """None: it is intact."""
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
        try:
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.Error as error:
        return str(error)
    return None if verdict == "ok" else str(verdict)


def _config_file(running: Settings) -> Iterator[Finding]:
    path = running.home.config_file
    try:
        changed = list_changed_settings(running)
    except HeliostatError as error:
        message = f"The server does not start again with this file: {error.message}"
        yield Finding("settings", "problem", message, error.hint or "")
        return
    if changed:
        message = f"{path} was changed after the server had started: {', '.join(changed)}."
        yield Finding(
            "settings", "warning", message, "Apply it: systemctl reload heliostat, or helio down; helio up"
        )
    else:
        yield Finding("settings", "ok", f"The server runs with the settings in {path}.")


def _port(server: ServerSettings) -> Iterator[Finding]:
    with socket.socket() as probe:
        try:
            probe.bind((server.host, server.port))
        except OSError as error:
            message = f"Port {server.port} on {server.host} cannot be used: {error.strerror}."
            hint = "If Heliostat itself is not using it: helio up --port OTHER"
            yield Finding("port", "warning", message, hint)
        else:
            yield Finding("port", "ok", f"Port {server.port} on {server.host} is free.")


def _web(server: ServerSettings) -> Iterator[Finding]:
    public_url, see = server.public_url or "", "docs/admins.md#network-access"
    if public_url.startswith("https://"):
        if server.trusted_proxies:
            yield Finding("web", "ok", f"Browsers reach {public_url} by TLS.")
            return
        message = "All visitors have the address of the reverse proxy: they share limits on failed logins."
        yield Finding("web", "warning", message, f'Set server.trusted_proxies = ["127.0.0.1"]: {see}')
    elif server.host not in ("127.0.0.1", "::1", "localhost"):
        message = "Other machines reach the web without TLS: others can read passwords and cookies on the way."
        yield Finding("web", "warning", message, f"Put a reverse proxy with TLS in front of it: {see}")
    elif not can_identify_local_users():
        message = "This kernel does not tell the users of connections: logins of browsers can be copied."
        yield Finding("web", "warning", message, f"Load the kernel module tcp_diag, or use TLS: {see}")
    else:
        yield Finding("web", "ok", "The login of a browser is valid only for its Unix user on this machine.")


def _nodes(nodes: Sequence[Node]) -> Iterator[Finding]:
    for node in nodes:
        if node.state is not NodeState.UP:
            hint = f"helio node resume {node.name}"
            yield Finding("nodes", "warning", f"{node.name} is {node.state}: {node.reason or 'no reason'}.", hint)
        for note in node.notes:
            yield Finding("gpu", "ok" if node.devices else "warning", f"{node.name}: {note}")
        for device in node.devices:
            yield from _device(node, device)


def _device(node: Node, device: Device) -> Iterator[Finding]:
    where = f"GPU {device.number} ({device.type}) of {node.name}"
    if device.problem:
        hint = "It gets no jobs. Check `nvidia-smi -q` and `dmesg | grep -i xid`; a reset or reboot may help."
        yield Finding("gpu", "problem", f"{where}: {device.problem}", hint)
    elif device.used_outside:
        yield Finding(
            "gpu", "warning", f"{where} is {device.used_outside}", "It gets no jobs until that process ends."
        )
    else:
        yield Finding("gpu", "ok", f"{where} is healthy.")


def _open_to_others(path: Path) -> bool:
    return path.exists() and bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def _closed_parent(path: Path) -> Path | None:
    """The innermost folder of the path that other users cannot enter."""
    for folder in [path, *path.parents]:
        if not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None
