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
from heliostat.provision.slurm.configuration import node_script
from heliostat.provision.slurm.database import set_up_database
from heliostat.provision.slurm.description import Description
from heliostat.provision.slurm.hardware import nodes_toml
from heliostat.provision.slurm.layout import Layout
from heliostat.provision.slurm.machine import SetupMachine
from heliostat.provision.slurm.nodes_file import read_description
from heliostat.provision.slurm.writing import (
    HIDDEN,
    Difference,
    difference,
    known_password,
    make_folders,
    refuse_foreign,
    wanted_files,
    write,
    write_whole,
)

_BOOT = re.compile(r"^BOOT_TIME\s*= (\S+)$", re.MULTILINE)
# In Slurm's own words, when it knew of GPUs and slurmd did not yet. Another reason is left alone.
_TAKEN_OUT = re.compile(r"DRAIN.* Reason=gres/gpu count reported lower than configured \(")
_NORMAL = "priority=100"  # between the classes of `helio slurm apply`; Slurm gives it none
_SLURMD_PORT = 6818
_LARGEST = 1_000_000  # bytes of a nodes.toml


@dataclass(frozen=True)
class SetupPlan:
    files: list[Difference]
    packages: list[str]  # that are missing
    commands: list[str]  # what runs in the end, in the order of its start


@dataclass(frozen=True)
class Sources:
    """What a person gave."""

    nodes: Path
    prefix: str = ""

    @property
    def layout(self) -> Layout:
        return Layout(self.prefix.rstrip("/"))

    def description(self) -> Description:
        text = _text_of(self.nodes)
        try:
            return read_description(text)
        except Invalid as error:
            raise Invalid(f"In {self.nodes}: {error.message}", error.hint) from error


def plan_setup(sources: Sources) -> SetupPlan:
    """What `apply_setup` would do here. Changes nothing."""
    described, layout = sources.description(), sources.layout
    files = wanted_files(described, layout, known_password(layout) or HIDDEN)
    machine = SetupMachine(layout)
    missing = machine.lacks(daemons.packages_for(described))
    lines = [machine.way_to_start(daemon) for daemon in daemons.all_daemons(described, layout)]
    return SetupPlan([difference(one) for one in files], missing, lines)


def write_plan(sources: Sources, folder: Path) -> list[Path]:
    """The files as they would be, in a folder of their own; without the password, which `apply_setup` makes."""
    folder.mkdir(parents=True, exist_ok=True)
    files = wanted_files(sources.description(), sources.layout, HIDDEN)
    there = [folder / one.path.name for one in files if (folder / one.path.name).exists()]
    if there:
        raise Conflict(f"{there[0]} is there already.", "Name an empty folder.")
    for one in files:
        (folder / one.path.name).write_text(one.text, encoding="utf-8")
    return [folder / one.path.name for one in files]


def apply_setup(sources: Sources, install: bool = False) -> Iterator[str]:
    """Tells each step that changed something. Where it cannot go on it raises, with what to do."""
    described, layout = sources.description(), sources.layout
    _check_place(described)
    refuse_foreign(wanted_files(described, layout, HIDDEN))
    machine = SetupMachine(layout)
    yield from _packages(machine, described, install)
    make_folders(layout)
    with _alone(layout):
        password = known_password(layout) or secrets.token_urlsafe(24)
        yield from _key(layout)
        yield from filter(None, map(write, wanted_files(described, layout, password)))
        yield from _Start(machine, described, layout).everything(password)


def script_for_nodes(sources: Sources, with_key: bool) -> str:
    """What makes a machine a node; with the key it is as secret as that."""
    layout = sources.layout
    if not with_key:
        return node_script(sources.description(), layout)
    try:
        key = Path(layout.key).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"There is no {layout.key} yet.", "Make it first: helio slurm setup apply") from None
    except PermissionError:
        raise Forbidden(f"Only root may read {layout.key}.", "Run this as root.") from None
    return node_script(sources.description(), layout, key)


def describe_machine(said: Path | None) -> str:
    """A part of nodes.toml, from what was pasted, or from this machine itself."""
    if said is not None:
        return nodes_toml(_text_of(said))
    machine = SetupMachine(Layout())
    if machine.lacks(daemons.NODE_PACKAGES):
        hint = "Install it first: apt-get install --no-install-recommends slurmd"
        raise NotFound("slurmd is not installed here.", hint)
    return nodes_toml(machine.run(["slurmd", "-C"]) + "\n" + (machine.answers(["nvidia-smi", "-L"]) or ""))


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


def _check_place(described: Description) -> None:
    if os.geteuid() != 0:
        raise Forbidden("Only root can set up Slurm.", "Run it as root; `plan` works without.")
    here = socket.gethostname().partition(".")[0]
    if here != described.controller:
        hint = f'Run this on {described.controller}, or write controller = "{here}".'
        raise Conflict(f'This is {here}, and nodes.toml says controller = "{described.controller}".', hint)


def _packages(machine: SetupMachine, described: Description, install: bool) -> Iterator[str]:
    missing = machine.lacks(daemons.packages_for(described))
    if not missing:
        return
    if not install:
        hint = f"Repeat with --install, or: apt-get install --no-install-recommends {' '.join(missing)}"
        raise Conflict(f"Not installed: {', '.join(missing)}.", hint)
    machine.install(missing)
    yield f"Installed {', '.join(missing)}."


@contextmanager
def _alone(layout: Layout) -> Iterator[None]:
    """Two at once would make two passwords."""
    with open(Path(layout.conf_folder) / ".heliostat.lock", "a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("Somebody else is setting up Slurm here.", "Wait until that is done.") from None
        yield


def _key(layout: Layout) -> Iterator[str]:
    """One that is there is kept: other machines may know it."""
    path = Path(layout.key)
    if path.exists():
        return
    write_whole(path, secrets.token_bytes(128), 0o400, "munge")
    yield f"Made the key of munge, {path}."


class _Start:
    """Everything that runs, each after what it needs."""

    def __init__(self, machine: SetupMachine, described: Description, layout: Layout) -> None:
        self._machine, self._described, self._layout = machine, described, layout

    def everything(self, password: str) -> Iterator[str]:
        munged = ["munge", "-n", "-S", self._layout.munge_socket]
        yield from self._up(daemons.munge(self._layout), lambda: self._machine.answers(munged) is not None)
        if self._clusters() is None:
            yield from set_up_database(self._machine, self._described, self._layout, password)
        yield from self._up(daemons.accounting(self._layout), lambda: self._clusters() is not None)
        if self._described.cluster not in (self._clusters() or ()):
            self._machine.run(["sacctmgr", "-i", "-Q", "modify", "qos", "where", "name=normal", "set", _NORMAL])
            self._machine.run(["sacctmgr", "-i", "-Q", "add", "cluster", self._described.cluster])
            yield f"Added the cluster {self._described.cluster} to the accounting."
        begun = list(self._controller())
        yield from begun
        for name in daemons.machines_here(self._described):
            yield from self._node(name, bool(begun))

    def _up(self, daemon: daemons.Daemon, is_up: Callable[[], bool]) -> Iterator[str]:
        if not is_up():
            yield self._machine.start(daemon, is_up)

    def _clusters(self) -> list[str] | None:
        """Those slurmdbd knows; None if it does not answer."""
        said = self._machine.answers(["sacctmgr", "-n", "-P", "list", "cluster", "format=Cluster"])
        return None if said is None else said.split()

    def _controller(self) -> Iterator[str]:
        daemon = daemons.controller(self._layout)
        if not self._controls():
            yield self._machine.start(daemon, self._controls)
        elif self._is_behind():
            yield self._machine.start(daemon, self._controls, "runs with the files of before")
            self._machine.answers(["scontrol", "reconfigure"])

    def _controls(self) -> bool:
        return "is UP" in (self._machine.answers(["scontrol", "ping"]) or "")

    def _is_behind(self) -> bool:
        """Whether slurmctld began before its files were written: true also after a crash in between."""
        found = _BOOT.search(self._machine.answers(["scontrol", "show", "config"]) or "")
        if not found:
            return False
        began = datetime.fromisoformat(found[1]).timestamp()
        files = (Path(self._layout.conf_folder) / name for name in ("slurm.conf", "gres.conf", "cgroup.conf"))
        return any(int(file.stat().st_mtime) > began for file in files)

    def _node(self, name: str, anew: bool) -> Iterator[str]:
        machine = next(one for one in self._described.machines if one.name == name)
        at = (machine.address or machine.hostname, machine.port or _SLURMD_PORT)
        if not _listens(at) or (anew and self._machine.has_systemd):
            yield self._machine.start(daemons.node(self._layout, name), lambda: _listens(at))
        if _TAKEN_OUT.search(self._machine.answers(["scontrol", "-o", "show", "node", name]) or ""):
            self._machine.run(["scontrol", "update", f"nodename={name}", "state=resume"])
            yield f"Resumed {name}."


def _listens(at: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(at, timeout=5):
            return True
    except OSError:
        return False
