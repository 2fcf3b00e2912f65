"""Sets up a Slurm on this machine, step by step: what is done already is left alone, so it may be repeated.

A step that was cut short is done again. Before the first of them everything that speaks against it is looked for.
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
from heliostat.provision.slurm import daemons
from heliostat.provision.slurm.cluster_spec import ClusterSpec
from heliostat.provision.slurm.config_files import (
    PASSWORD_PLACEHOLDER,
    FileDifference,
    check_no_foreign_files,
    compare_file,
    desired_files,
    make_folders,
    read_existing_password,
    write_file,
    write_file_atomically,
)
from heliostat.provision.slurm.configuration import render_node_script
from heliostat.provision.slurm.database import set_up_database
from heliostat.provision.slurm.hardware import render_nodes_toml
from heliostat.provision.slurm.nodes_file import parse_nodes_file
from heliostat.provision.slurm.paths import SlurmPaths
from heliostat.provision.slurm.setup_host import SetupHost

_BOOT = re.compile(r"^BOOT_TIME\s*= (\S+)$", re.MULTILINE)
# In Slurm's own words, when it knew of GPUs and slurmd did not yet. Another reason is left alone.
_TAKEN_OUT = re.compile(r"DRAIN.* Reason=gres/gpu count reported lower than configured \(")
_NORMAL = "priority=100"  # between the classes of `helio slurm apply`; Slurm gives it none
_SLURMD_PORT = 6818
_LARGEST = 1_000_000  # bytes of a nodes.toml


@dataclass(frozen=True)
class SetupPlan:
    files: list[FileDifference]
    packages: list[str]  # that are missing
    commands: list[str]  # what runs in the end, in the order of its start


@dataclass(frozen=True)
class SetupInput:
    """What a person gave."""

    nodes_file: Path
    prefix: str = ""

    @property
    def paths(self) -> SlurmPaths:
        return SlurmPaths(self.prefix.rstrip("/"))

    def read_cluster_spec(self) -> ClusterSpec:
        text = _text_of(self.nodes_file)
        try:
            return parse_nodes_file(text)
        except Invalid as error:
            raise Invalid(f"In {self.nodes_file}: {error.message}", error.hint) from error


def plan_setup(sources: SetupInput) -> SetupPlan:
    """What `apply_setup` would do here. Changes nothing."""
    described, layout = sources.read_cluster_spec(), sources.paths
    files = desired_files(described, layout, read_existing_password(layout) or PASSWORD_PLACEHOLDER)
    machine = SetupHost(layout)
    missing = machine.missing_packages(daemons.required_packages(described))
    lines = [machine.start_command(daemon) for daemon in daemons.list_daemons(described, layout)]
    return SetupPlan([compare_file(one) for one in files], missing, lines)


def write_planned_files(sources: SetupInput, folder: Path) -> list[Path]:
    """The files as they would be, in a folder of their own; without the password, which `apply_setup` makes."""
    folder.mkdir(parents=True, exist_ok=True)
    files = desired_files(sources.read_cluster_spec(), sources.paths, PASSWORD_PLACEHOLDER)
    there = [folder / one.path.name for one in files if (folder / one.path.name).exists()]
    if there:
        raise Conflict(f"{there[0]} is there already.", "Name an empty folder.")
    for one in files:
        (folder / one.path.name).write_text(one.text, encoding="utf-8")
    return [folder / one.path.name for one in files]


def apply_setup(sources: SetupInput, install: bool = False) -> Iterator[str]:
    """Tells each step that changed something. Where it cannot go on it raises, with what to do."""
    described, layout = sources.read_cluster_spec(), sources.paths
    _check_place(described)
    check_no_foreign_files(desired_files(described, layout, PASSWORD_PLACEHOLDER))
    machine = SetupHost(layout)
    yield from _packages(machine, described, install)
    make_folders(layout)
    with _alone(layout):
        password = read_existing_password(layout) or secrets.token_urlsafe(24)
        yield from _key(layout)
        yield from filter(None, map(write_file, desired_files(described, layout, password)))
        yield from _Start(machine, described, layout).everything(password)


def make_node_script(sources: SetupInput, with_key: bool) -> str:
    """What makes a machine a node; with the key it is as secret as that."""
    layout = sources.paths
    if not with_key:
        return render_node_script(sources.read_cluster_spec(), layout)
    try:
        key = Path(layout.munge_key).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"There is no {layout.munge_key} yet.", "Make it first: helio slurm setup apply") from None
    except PermissionError:
        raise Forbidden(f"Only root may read {layout.munge_key}.", "Run this as root.") from None
    return render_node_script(sources.read_cluster_spec(), layout, key)


def describe_node(said: Path | None) -> str:
    """A part of nodes.toml, from what was pasted, or from this machine itself."""
    if said is not None:
        return render_nodes_toml(_text_of(said))
    machine = SetupHost(SlurmPaths())
    if machine.missing_packages(daemons.NODE_PACKAGES):
        hint = "Install it first: apt-get install --no-install-recommends slurmd"
        raise NotFound("slurmd is not installed here.", hint)
    return render_nodes_toml(machine.run(["slurmd", "-C"]) + "\n" + (machine.try_run(["nvidia-smi", "-L"]) or ""))


def _text_of(path: Path) -> str:
    try:
        content = path.read_bytes() if path.is_file() else path.open("rb").read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise Invalid(f"{path} is too large.", f"At most {_LARGEST} bytes.")
        return content.decode("utf-8")
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}.", "docs/admins.md has an example.") from error
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not a text in UTF-8.", "Save it as one.") from error


def _check_place(described: ClusterSpec) -> None:
    if os.geteuid() != 0:
        raise Forbidden("Only root can set up Slurm.", "Run it as root; `plan` works without.")
    here = socket.gethostname().partition(".")[0]
    if here != described.controller:
        hint = f'Run this on {described.controller}, or write controller = "{here}".'
        raise Conflict(f'This is {here}, and nodes.toml says controller = "{described.controller}".', hint)


def _packages(machine: SetupHost, described: ClusterSpec, install: bool) -> Iterator[str]:
    missing = machine.missing_packages(daemons.required_packages(described))
    if not missing:
        return
    if not install:
        hint = f"Repeat with --install, or: apt-get install --no-install-recommends {' '.join(missing)}"
        raise Conflict(f"Not installed: {', '.join(missing)}.", hint)
    machine.install(missing)
    yield f"Installed {', '.join(missing)}."


@contextmanager
def _alone(layout: SlurmPaths) -> Iterator[None]:
    """Two at once would make two passwords."""
    with open(Path(layout.config_folder) / ".heliostat.lock", "a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("Somebody else is setting up Slurm here.", "Wait until that is done.") from None
        yield


def _key(layout: SlurmPaths) -> Iterator[str]:
    """One that is there is kept: other machines may know it."""
    path = Path(layout.munge_key)
    if path.exists():
        return
    write_file_atomically(path, secrets.token_bytes(128), 0o400, "munge")
    yield f"Made the key of munge, {path}."


class _Start:
    """Everything that runs, each after what it needs."""

    def __init__(self, machine: SetupHost, described: ClusterSpec, layout: SlurmPaths) -> None:
        self._machine, self._described, self._layout = machine, described, layout

    def everything(self, password: str) -> Iterator[str]:
        munged = ["munge", "-n", "-S", self._layout.munge_socket]
        yield from self._up(daemons.munge_daemon(self._layout), lambda: self._machine.try_run(munged) is not None)
        if self._clusters() is None:
            yield from set_up_database(self._machine, self._described, self._layout, password)
        yield from self._up(daemons.accounting_daemon(self._layout), lambda: self._clusters() is not None)
        if self._described.cluster not in (self._clusters() or ()):
            self._machine.run(["sacctmgr", "-i", "-Q", "modify", "qos", "where", "name=normal", "set", _NORMAL])
            self._machine.run(["sacctmgr", "-i", "-Q", "add", "cluster", self._described.cluster])
            yield f"Added the cluster {self._described.cluster} to the accounting."
        begun = list(self._controller())
        yield from begun
        for name in daemons.nodes_on_controller(self._described):
            yield from self._node(name, bool(begun))

    def _up(self, daemon: daemons.Daemon, is_up: Callable[[], bool]) -> Iterator[str]:
        if not is_up():
            yield self._machine.start_daemon(daemon, is_up)

    def _clusters(self) -> list[str] | None:
        """Those slurmdbd knows; None if it does not answer."""
        said = self._machine.try_run(["sacctmgr", "-n", "-P", "list", "cluster", "format=Cluster"])
        return None if said is None else said.split()

    def _controller(self) -> Iterator[str]:
        daemon = daemons.controller_daemon(self._layout)
        if not self._controls():
            yield self._machine.start_daemon(daemon, self._controls)
        elif self._is_behind():
            yield self._machine.start_daemon(daemon, self._controls, "runs with the files of before")
            self._machine.try_run(["scontrol", "reconfigure"])

    def _controls(self) -> bool:
        return "is UP" in (self._machine.try_run(["scontrol", "ping"]) or "")

    def _is_behind(self) -> bool:
        """Whether slurmctld began before its files were written: true also after a crash in between."""
        found = _BOOT.search(self._machine.try_run(["scontrol", "show", "config"]) or "")
        if not found:
            return False
        began = datetime.fromisoformat(found[1]).timestamp()
        files = (Path(self._layout.config_folder) / name for name in ("slurm.conf", "gres.conf", "cgroup.conf"))
        return any(int(file.stat().st_mtime) > began for file in files)

    def _node(self, name: str, anew: bool) -> Iterator[str]:
        machine = next(one for one in self._described.nodes if one.name == name)
        at = (machine.address or machine.hostname, machine.port or _SLURMD_PORT)
        if not _listens(at) or (anew and self._machine.has_systemd):
            yield self._machine.start_daemon(daemons.node_daemon(self._layout, name), lambda: _listens(at))
        if _TAKEN_OUT.search(self._machine.try_run(["scontrol", "-o", "show", "node", name]) or ""):
            self._machine.run(["scontrol", "update", f"nodename={name}", "state=resume"])
            yield f"Resumed {name}."


def _listens(at: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(at, timeout=5):
            return True
    except OSError:
        return False
