"""What this machine lacks to run jobs, to build environments and images, and to run containers: for the doctor."""

import importlib.util
import os
import pwd
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heliostat.config import Settings
from heliostat.engines.contract import Finding
from heliostat.engines.local.cgroups import CgroupsUnavailable, find_cgroups
from heliostat.engines.local.gpus import find_gpus
from heliostat.engines.local.image_stores import describe_image_stores
from heliostat.engines.local.local_node import make_local_node
from heliostat.models import Node
from heliostat.runtimes.all_runtimes import RUNTIMES
from heliostat.runtimes.contract import TOOL_PATH

_FIRST_PERSON = 1000  # numbers below are those of services
_NOBODY = 65_000
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class HostAccount:
    name: str
    uid: int
    shell: str

    @property
    def is_login_user(self) -> bool:
        """Somebody who may log in, and so may have jobs."""
        return _FIRST_PERSON <= self.uid < _NOBODY and not self.shell.endswith(("nologin", "false"))


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What is to be known of it."""

    has_program: Callable[[str], bool]  # a program
    is_root: bool
    accounts: tuple[HostAccount, ...]
    subuid_owners: (
        frozenset[str] | None
    )  # who has a range of user numbers, by name or number; None: nobody can tell here


def examine_local(settings: Settings) -> Iterator[Finding]:
    """All findings, also the good ones."""
    yield from _cgroups()
    yield from _tools()
    yield from _containers(settings)
    yield from examine_host(settings, _this_machine())
    if taken := describe_image_stores(settings.home.images, settings.containers):
        yield Finding("image stores", "ok", taken)


def read_local_node(settings: Settings) -> Node:
    """This machine and its GPUs, as they are now."""
    gpus = find_gpus(settings.server.simulate_gpus)
    return make_local_node(settings.server.node_name, tuple(gpus.read()), (gpus.note,) if gpus.note else ())


def examine_host(settings: Settings, machine: HostFacts) -> Iterator[Finding]:
    """Good and bad ones. Pure."""
    yield from _environments(settings, machine)
    if "podman" in settings.containers.runtimes:
        yield from _images(machine)


def _cgroups() -> Iterator[Finding]:
    found = find_cgroups("doctor")
    if isinstance(found, CgroupsUnavailable):
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


def _containers(settings: Settings) -> Iterator[Finding]:
    tools = {name: RUNTIMES[name].program for name in settings.containers.runtimes if name != "process"}
    there = [name for name, program in tools.items() if shutil.which(program, path=TOOL_PATH)]
    missing = [name for name in tools if name not in there]
    hint = f"Not installed: {', '.join(missing)}." if missing else None
    if there:
        yield Finding("containers", "ok", f"Jobs can be isolated by {', '.join(there)}.", hint)
    elif settings.containers.required or settings.containers.required_for:
        yield Finding("containers", "problem", "Containers are required, and nothing here can run one.", hint)
    else:
        yield Finding("containers", "ok", "Jobs run as plain processes.", hint)
    if "podman" in there and not shutil.which("catatonit", path=TOOL_PATH):
        yield Finding(
            "containers", "problem", "podman cannot start jobs without catatonit.", "apt install catatonit"
        )


def _environments(settings: Settings, machine: HostFacts) -> Iterator[Finding]:
    check = "environments"
    if not machine.has_program("uv"):
        hint = "pip install 'heliostat[environments]', or put uv into /usr/local/bin."
        yield Finding(
            check, "warning", "uv is missing, so no environment can be built (helio run --env FILE).", hint
        )
        return
    if not machine.is_root:
        yield Finding(check, "ok", "Environments are built by uv; without root each person's are their own.")
        return
    if not machine.has_program("bwrap"):
        message = "bubblewrap is missing, so environments are built for each person anew, not once for all."
        yield Finding(check, "warning", message, "apt install bubblewrap")
        return
    yield _builder(settings, machine)


def _builder(settings: Settings, machine: HostFacts) -> Finding:
    name, check = settings.environments.builder, "environments"
    account = next((one for one in machine.accounts if one.name == name), None)
    hint = f"useradd --system --shell /usr/sbin/nologin {name}"
    if account is None:
        message = f"There is no account {name}, so environments are built for each person anew, not once for all."
        return Finding(check, "warning", message, hint)
    if account.uid == 0:
        message = f"{name} is root, and must not build for others."
        return Finding(check, "problem", message, f"Set builder in [environments]. {hint}")
    if not account.shell.endswith(("nologin", "false")):
        message = f"{name} builds for everybody, and can log in."
        return Finding(check, "warning", message, f"usermod --shell /usr/sbin/nologin {name}")
    return Finding(check, "ok", f"Environments are built by uv as {name}, once for everybody.")


def _images(machine: HostFacts) -> Iterator[Finding]:
    check = "images"
    if not machine.has_program("podman"):
        message = "podman is missing, so jobs cannot run in images, and none can be built."
        yield Finding(check, "warning", message, "apt install podman crun catatonit uidmap slirp4netns")
        return
    if not machine.has_program("newuidmap"):
        message = "newuidmap is missing, so podman runs for nobody but root."
        yield Finding(check, "warning", message, "apt install uidmap")
        return
    yield _ranges(machine)


def _ranges(machine: HostFacts) -> Finding:
    people = [one for one in machine.accounts if one.is_login_user]
    known = machine.subuid_owners
    without = [] if known is None else [one for one in people if not known & {one.name, str(one.uid)}]
    if not without:
        return Finding("images", "ok", "podman can run images, and everybody has user numbers for it.")
    names = ", ".join(one.name for one in without[:_MOST_NAMED])
    more = f" and {len(without) - _MOST_NAMED} more" if len(without) > _MOST_NAMED else ""
    hint = (
        f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {without[0].name} "
        "(numbers nobody else has in /etc/subuid)"
    )
    return Finding("images", "warning", f"podman needs a range of user numbers; without one: {names}{more}.", hint)


def _this_machine() -> HostFacts:
    accounts = tuple(HostAccount(one.pw_name, one.pw_uid, one.pw_shell) for one in pwd.getpwall())
    return HostFacts(_has, os.geteuid() == 0, accounts, _known_ranges())


def _has(program: str) -> bool:
    """On this machine; uv may have come with us."""
    found = shutil.which(program, path=TOOL_PATH) is not None
    return found or (program == "uv" and importlib.util.find_spec("uv") is not None)


def _known_ranges() -> frozenset[str] | None:
    """Both files must have one. They may be kept elsewhere, where only the tools look."""
    if any(line.startswith("subid:") for line in _lines("/etc/nsswitch.conf")):
        return None
    users, groups = (_owners(_lines(path)) for path in ("/etc/subuid", "/etc/subgid"))
    return users & groups


def _owners(lines: Iterable[str]) -> frozenset[str]:
    return frozenset(line.partition(":")[0] for line in lines if line.count(":") == 2)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
