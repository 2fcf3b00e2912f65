"""Examines an installation: what is wrong with it, and what to do about each finding."""

import os
import shutil
import socket
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from heliostat.config import ContainerSettings, Home, ServerSettings, Settings
from heliostat.engines.local.software import examine_software
from heliostat.models import Node, NodeState
from heliostat.runtimes.catalogue import RUNTIMES
from heliostat.runtimes.contract import TOOL_PATH

_LOW_BYTES = 5 * 2**30
_EMPTY_BYTES = 500 * 2**20


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: str  # ok, warning, problem
    message: str
    hint: str | None = None


def examine(settings: Settings, nodes: Sequence[Node] | None = None) -> list[Finding]:
    """All findings, also the good ones. With nodes it runs inside the server, without it looks for itself."""
    findings = [*_home(settings.home), *_disk(settings.home), *_database(settings.home)]
    if settings.server.engine == "slurm":
        from heliostat.engines.slurm.checks import examine_slurm

        said = [Finding(*finding) for finding in examine_slurm(settings)]
        return [*findings, *(_port(settings.server) if nodes is None else ()), *said, *_nodes(nodes or ())]
    if nodes is None:
        findings += [*_port(settings.server), *_nodes(_look(settings.server))]
    else:
        findings += _nodes(nodes)
    software = [Finding(*found) for found in examine_software(settings)]
    return [*findings, *_cgroups(), *_tools(), *_containers(settings.containers), *software]


def _home(home: Home) -> Iterator[Finding]:
    path = home.path
    if not path.is_dir():
        yield Finding("data directory", "warning", f"{path} does not exist yet.", "`helio up` makes it.")
        return
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(
            "permissions",
            "problem",
            f"{path} cannot be written by you.",
            "Run as its owner, or set HELIOSTAT_HOME.",
        )
        return
    if loose := [name for name in ("heliostat.db", "attempts") if _open_to_others(path / name)]:
        names = " ".join(str(path / name) for name in loose)
        yield Finding("permissions", "problem", f"Others can read {names}.", f"chmod -R go-rwx {names}")
    elif os.geteuid() == 0 and (closed := _closed_parent(path)):
        hint = f"chmod a+x {closed}, or choose another HELIOSTAT_HOME."
        yield Finding(
            "permissions", "problem", f"Other users' jobs cannot reach their logs: {closed} is closed.", hint
        )
    else:
        yield Finding("permissions", "ok", f"{path} is ours and closed to others.")
    if os.geteuid() != 0:
        yield Finding(
            "users",
            "warning",
            "Heliostat does not run as root, so it serves only you.",
            "Run it as root to serve everybody on this machine, each job as its own user.",
        )


def _disk(home: Home) -> Iterator[Finding]:
    path = home.path
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    message = f"{free / 2**30:.1f} GiB free for {home.path}."
    if free < _EMPTY_BYTES:
        yield Finding("disk", "problem", message, "Jobs cannot start without space: remove files on that disk.")
    elif free < _LOW_BYTES:
        yield Finding("disk", "warning", message, "Make room before it is full; logs of jobs are under jobs/.")
    else:
        yield Finding("disk", "ok", message)


def _database(home: Home) -> Iterator[Finding]:
    path = home.database
    if not path.exists():
        return
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
        try:
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.Error as error:
        verdict = str(error)
    if verdict == "ok":
        yield Finding("database", "ok", f"{path} is sound ({path.stat().st_size / 2**20:.1f} MiB).")
    else:
        hint = "Stop Heliostat, keep a copy of the file, and restore a backup or run sqlite3's .recover."
        yield Finding("database", "problem", f"{path}: {verdict}", hint)


def _port(server: ServerSettings) -> Iterator[Finding]:
    with socket.socket() as probe:
        try:
            probe.bind((server.host, server.port))
        except OSError as error:
            message = f"Port {server.port} on {server.host} cannot be used: {error.strerror}."
            yield Finding("port", "warning", message, "If that is not Heliostat itself: helio up --port OTHER")
        else:
            yield Finding("port", "ok", f"Port {server.port} on {server.host} is free.")


def _look(server: ServerSettings) -> Sequence[Node]:
    """Without a server: this machine's own GPUs."""
    from heliostat.engines.local.gpus import find_gpus
    from heliostat.engines.local.machine import this_node

    gpus = find_gpus(server.simulate_gpus)
    devices = tuple(gpus.read())
    return [this_node(server.node_name, devices, (gpus.note,) if gpus.note else ())]


def _nodes(nodes: Sequence[Node]) -> Iterator[Finding]:
    for node in nodes:
        if node.state is not NodeState.UP:
            hint = f"helio node resume {node.name}"
            yield Finding("nodes", "warning", f"{node.name} is {node.state}: {node.reason or 'no reason'}.", hint)
        for note in node.notes:
            yield Finding("gpu", "ok" if node.devices else "warning", f"{node.name}: {note}")
        for device in node.devices:
            yield from _device(node, device.index, device.type, device.problem, device.used_outside)


def _device(node: Node, index: int, kind: str, problem: str | None, used: str | None) -> Iterator[Finding]:
    where = f"GPU {index} ({kind}) of {node.name}"
    if problem:
        hint = "It gets no jobs. Look at `nvidia-smi -q` and `dmesg | grep -i xid`; a reset or reboot may help."
        yield Finding("gpu", "problem", f"{where}: {problem}", hint)
    elif used:
        yield Finding("gpu", "warning", f"{where} is {used}", "It gets no jobs until that process ends.")
    else:
        yield Finding("gpu", "ok", f"{where} is healthy.")


def _cgroups() -> Iterator[Finding]:
    from heliostat.engines.local.cgroups import NoCgroups, find_cgroups

    found = find_cgroups("doctor")
    if isinstance(found, NoCgroups):
        yield Finding("cgroups", "warning", found.reason, "Memory and cpu limits of jobs are not enforced.")
        return
    missing = {"memory", "cpu", "pids"} - found.controllers
    description = found.description
    found.remove()
    if missing:
        hint = "Enable them in the kernel or in systemd (Delegate=yes)."
        yield Finding("cgroups", "warning", f"{description}: no {', '.join(sorted(missing))} limits.", hint)
    else:
        yield Finding("cgroups", "ok", f"Memory, cpu and process limits are enforced ({description}).")


def _tools() -> Iterator[Finding]:
    if os.geteuid() == 0 and not os.access("/usr/bin/setpriv", os.X_OK):
        hint = "apt-get install util-linux"
        yield Finding("tools", "problem", "/usr/bin/setpriv is missing, so jobs cannot run as their users.", hint)


def _containers(containers: ContainerSettings) -> Iterator[Finding]:
    tools = {name: RUNTIMES[name].program for name in containers.runtimes if name != "process"}
    there = [name for name, program in tools.items() if shutil.which(program, path=TOOL_PATH)]
    missing = [name for name in tools if name not in there]
    hint = f"Not installed: {', '.join(missing)}." if missing else None
    if there:
        yield Finding("containers", "ok", f"Jobs can be isolated by {', '.join(there)}.", hint)
    elif containers.required or containers.required_for:
        yield Finding("containers", "problem", "Containers are required, and nothing here can run one.", hint)
    else:
        yield Finding("containers", "ok", "Jobs run as plain processes.", hint)
    if "podman" in there and not shutil.which("catatonit", path=TOOL_PATH):
        yield Finding(
            "containers", "problem", "podman cannot start jobs without catatonit.", "apt install catatonit"
        )


def _open_to_others(path: Path) -> bool:
    return path.exists() and bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def _closed_parent(path: Path) -> Path | None:
    """The first folder on the way that other users may not pass."""
    for folder in [path, *path.parents]:
        if not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None
