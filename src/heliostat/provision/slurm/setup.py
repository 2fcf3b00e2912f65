"""Setup of a Slurm controller on this machine: packages, files, database, daemons. Repeatable.

Steps that are already done are skipped; an interrupted step is repeated. All checks run before the first change.
"""

import fcntl
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from heliostat.errors import Conflict, Forbidden, Invalid, NotFound
from heliostat.provision.managed_files import (
    FileDifference,
    check_no_foreign_files,
    compare_file,
    write_file,
    write_file_atomically,
)
from heliostat.provision.setup_host import Daemon, SetupHost
from heliostat.provision.slurm import daemons
from heliostat.provision.slurm.cluster_spec import ClusterSpec
from heliostat.provision.slurm.config_files import (
    CHANGED_HINT,
    FOREIGN_HINT,
    PASSWORD_PLACEHOLDER,
    desired_files,
    make_folders,
    read_existing_password,
)
from heliostat.provision.slurm.configuration import render_node_script
from heliostat.provision.slurm.database import set_up_database
from heliostat.provision.slurm.hardware import render_nodes_toml
from heliostat.provision.slurm.nodes_file import parse_nodes_file
from heliostat.provision.slurm.paths import SlurmPaths

_BOOT = re.compile(r"^BOOT_TIME\s*= (\S+)$", re.MULTILINE)
# Slurm drains a node with this reason if slurmd registers before its GPUs exist. Other reasons are not touched.
_DRAINED_FOR_GPUS = re.compile(r"DRAIN.* Reason=gres/gpu count reported lower than configured \(")
_NORMAL = "priority=100"  # between the priority classes of `helio slurm apply`; Slurm's default is 0
_SLURMD_PORT = 6818
_MAX_FILE_BYTES = 1_000_000


@dataclass(frozen=True)
class SetupPlan:
    files: list[FileDifference]
    packages: list[str]  # missing ones
    commands: list[str]  # that start the daemons, in this order


@dataclass(frozen=True)
class SetupInput:
    """Arguments of the command."""

    nodes_file: Path
    prefix: str = ""

    @property
    def paths(self) -> SlurmPaths:
        return SlurmPaths(self.prefix.rstrip("/"))

    def read_cluster_spec(self) -> ClusterSpec:
        text = _read_text(self.nodes_file)
        try:
            return parse_nodes_file(text)
        except Invalid as error:
            raise Invalid(f"In {self.nodes_file}: {error.message}", error.hint) from error


def plan_setup(sources: SetupInput) -> SetupPlan:
    """What `apply_setup` would do here. Changes nothing."""
    spec, paths = sources.read_cluster_spec(), sources.paths
    files = desired_files(spec, paths, read_existing_password(paths) or PASSWORD_PLACEHOLDER)
    host = _host(paths)
    missing = host.missing_packages(daemons.required_packages(spec))
    lines = [host.start_command(daemon) for daemon in daemons.list_daemons(spec, paths)]
    return SetupPlan([compare_file(file) for file in files], missing, lines)


def write_planned_files(sources: SetupInput, folder: Path) -> list[Path]:
    """Writes the planned files into this folder; without the password, which `apply_setup` generates."""
    folder.mkdir(parents=True, exist_ok=True)
    files = desired_files(sources.read_cluster_spec(), sources.paths, PASSWORD_PLACEHOLDER)
    existing = [folder / file.path.name for file in files if (folder / file.path.name).exists()]
    if existing:
        raise Conflict(f"{existing[0]} already exists.", "Choose an empty folder.")
    for file in files:
        (folder / file.path.name).write_text(file.text, encoding="utf-8")
    return [folder / file.path.name for file in files]


def apply_setup(sources: SetupInput, install: bool = False) -> Iterator[str]:
    """Yields a message for each step that changed something. Raises, with a hint, if it cannot continue."""
    spec, paths = sources.read_cluster_spec(), sources.paths
    _check_host(spec)
    check_no_foreign_files(desired_files(spec, paths, PASSWORD_PLACEHOLDER), FOREIGN_HINT, CHANGED_HINT)
    host = _host(paths)
    yield from _packages(host, spec, install)
    make_folders(paths)
    with _lock(paths):
        password = read_existing_password(paths) or secrets.token_urlsafe(24)
        yield from _make_munge_key(paths)
        yield from filter(None, map(write_file, desired_files(spec, paths, password)))
        yield from _DaemonStarter(host, spec, paths).start_all(password)


def make_node_script(sources: SetupInput, with_key: bool) -> str:
    """The script that sets up a node. With the munge key, it is as secret as the key."""
    paths = sources.paths
    if not with_key:
        return render_node_script(sources.read_cluster_spec(), paths)
    try:
        key = Path(paths.munge_key).read_bytes()
    except FileNotFoundError:
        raise NotFound(
            f"{paths.munge_key} does not exist yet.", "Create it first: helio slurm setup apply"
        ) from None
    except PermissionError:
        raise Forbidden(f"Only root may read {paths.munge_key}.", "Run this as root.") from None
    return render_node_script(sources.read_cluster_spec(), paths, key)


def describe_node(hardware_file: Path | None) -> str:
    """A section of nodes.toml, from a file with the output of `slurmd -C`, or from this machine."""
    if hardware_file is not None:
        return render_nodes_toml(_read_text(hardware_file))
    host = SetupHost()
    if host.missing_packages(daemons.NODE_PACKAGES):
        hint = "Install it first: apt-get install --no-install-recommends slurmd"
        raise NotFound("slurmd is not installed here.", hint)
    return render_nodes_toml(host.run(["slurmd", "-C"]) + "\n" + (host.try_run(["nvidia-smi", "-L"]) or ""))


def _host(paths: SlurmPaths) -> SetupHost:
    return SetupHost(paths.prefix, {"SLURM_CONF": paths.slurm_conf} if paths.prefix else None)


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes() if path.is_file() else path.open("rb").read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise Invalid(f"{path} is too large.", f"At most {_MAX_FILE_BYTES} bytes.")
        return content.decode("utf-8")
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}.", "docs/admins.md has an example.") from error
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not UTF-8 text.", "Save it as UTF-8.") from error


def _check_host(spec: ClusterSpec) -> None:
    if os.geteuid() != 0:
        raise Forbidden("Only root can set up Slurm.", "Run it as root; `plan` works without root.")
    host = socket.gethostname().partition(".")[0]
    if host != spec.controller:
        hint = f'Run this on {spec.controller}, or write controller = "{host}".'
        raise Conflict(f'This host is {host}, but nodes.toml has controller = "{spec.controller}".', hint)


def _packages(host: SetupHost, spec: ClusterSpec, install: bool) -> Iterator[str]:
    missing = host.missing_packages(daemons.required_packages(spec))
    if not missing:
        return
    if not install:
        hint = f"Repeat with --install, or: apt-get install --no-install-recommends {' '.join(missing)}"
        raise Conflict(f"Not installed: {', '.join(missing)}.", hint)
    host.install(missing)
    yield f"Installed {', '.join(missing)}."


@contextmanager
def _lock(paths: SlurmPaths) -> Iterator[None]:
    """Two setups at the same time would generate two passwords."""
    with open(Path(paths.config_folder) / ".heliostat.lock", "a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("Another setup of Slurm is running here.", "Wait until it has finished.") from None
        yield


def _make_munge_key(paths: SlurmPaths) -> Iterator[str]:
    """An existing key is kept: other nodes may have it."""
    path = Path(paths.munge_key)
    if path.exists():
        return
    write_file_atomically(path, secrets.token_bytes(128), 0o400, "munge")
    yield f"Created the munge key {path}."


class _DaemonStarter:
    """Starts the daemons in the order of their dependencies."""

    def __init__(self, host: SetupHost, spec: ClusterSpec, paths: SlurmPaths) -> None:
        self._host, self._spec, self._paths = host, spec, paths

    def start_all(self, password: str) -> Iterator[str]:
        munge_test = ["munge", "-n", "-S", self._paths.munge_socket]
        yield from self._start_if_down(
            daemons.munge_daemon(self._paths), lambda: self._host.try_run(munge_test) is not None
        )
        if self._clusters() is None:
            yield from set_up_database(self._host, self._spec, self._paths, password)
        yield from self._start_if_down(
            daemons.accounting_daemon(self._paths), lambda: self._clusters() is not None
        )
        if self._spec.cluster not in (self._clusters() or ()):
            self._host.run(["sacctmgr", "-i", "-Q", "modify", "qos", "where", "name=normal", "set", _NORMAL])
            self._host.run(["sacctmgr", "-i", "-Q", "add", "cluster", self._spec.cluster])
            yield f"Added the cluster {self._spec.cluster} to the accounting."
        controller_messages = list(self._start_controller())
        yield from controller_messages
        for name in daemons.nodes_on_controller(self._spec):
            yield from self._start_node(name, bool(controller_messages))

    def _start_if_down(self, daemon: Daemon, is_up: Callable[[], bool]) -> Iterator[str]:
        if not is_up():
            yield self._host.start_daemon(daemon, is_up)

    def _clusters(self) -> list[str] | None:
        """The clusters in slurmdbd; None if it does not respond."""
        output = self._host.try_run(["sacctmgr", "-n", "-P", "list", "cluster", "format=Cluster"])
        return None if output is None else output.split()

    def _start_controller(self) -> Iterator[str]:
        daemon = daemons.controller_daemon(self._paths)
        if not self._controller_is_up():
            yield self._host.start_daemon(daemon, self._controller_is_up)
        elif self._has_stale_configuration():
            yield self._host.start_daemon(daemon, self._controller_is_up, "runs with an old configuration")
            self._host.try_run(["scontrol", "reconfigure"])

    def _controller_is_up(self) -> bool:
        return "is UP" in (self._host.try_run(["scontrol", "ping"]) or "")

    def _has_stale_configuration(self) -> bool:
        """Whether slurmctld started before its files were written; detects this also after a crash in between."""
        match = _BOOT.search(self._host.try_run(["scontrol", "show", "config"]) or "")
        if not match:
            return False
        started_at = datetime.fromisoformat(match[1]).timestamp()
        files = (Path(self._paths.config_folder) / name for name in ("slurm.conf", "gres.conf", "cgroup.conf"))
        return any(int(file.stat().st_mtime) > started_at for file in files)

    def _start_node(self, name: str, restart: bool) -> Iterator[str]:
        node = next(node for node in self._spec.nodes if node.name == name)
        address = (node.address or node.hostname, node.port or _SLURMD_PORT)
        if not _is_listening(address) or (restart and self._host.has_systemd):
            daemon = daemons.node_daemon(self._paths, name)
            yield self._host.start_daemon(daemon, lambda: _is_listening(address))
        if _DRAINED_FOR_GPUS.search(self._host.try_run(["scontrol", "-o", "show", "node", name]) or ""):
            self._host.run(["scontrol", "update", f"nodename={name}", "state=resume"])
            yield f"Resumed {name}."


def _is_listening(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, timeout=5):
            return True
    except OSError:
        return False
