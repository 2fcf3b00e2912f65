"""Installation checks of this machine for `helio doctor`: cgroups, container runtimes, environments, images."""

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
from heliostat.engines.local.node_description import make_local_node
from heliostat.models import Node
from heliostat.runtimes.all_runtimes import RUNTIMES
from heliostat.runtimes.contract import TOOL_PATH

_FIRST_LOGIN_UID = 1000  # lower uids belong to services
_FIRST_RESERVED_UID = 65_000
_MAX_NAMES = 5


@dataclass(frozen=True, slots=True)
class HostAccount:
    name: str
    uid: int
    shell: str

    @property
    def is_login_user(self) -> bool:
        """Whether this user can log in, and so can have jobs."""
        is_login_uid = _FIRST_LOGIN_UID <= self.uid < _FIRST_RESERVED_UID
        return is_login_uid and not self.shell.endswith(("nologin", "false"))


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Properties of a machine that the checks need."""

    has_program: Callable[[str], bool]
    is_root: bool
    accounts: tuple[HostAccount, ...]
    subuid_owners: frozenset[str] | None  # names or uids with a range of subordinate ids; None: unknown


def examine_local(settings: Settings) -> Iterator[Finding]:
    """All findings, including positive ones."""
    yield from _cgroups()
    yield from _tools()
    yield from _containers(settings)
    yield from examine_host(settings, _this_machine())
    if usage := describe_image_stores(settings.home.images, settings.containers):
        yield Finding("image stores", "ok", usage)


def examine_environments(settings: Settings) -> Iterator[Finding]:
    """What prevents shared environments, if anything."""
    return (found for found in _environments(settings, _this_machine()) if found.level != "ok")


def read_local_node(settings: Settings) -> Node:
    """This machine with its current GPUs."""
    gpus = find_gpus(settings.server.simulate_gpus)
    return make_local_node(settings.server.node_name, tuple(gpus.read()), (gpus.note,) if gpus.note else ())


def examine_host(settings: Settings, machine: HostFacts) -> Iterator[Finding]:
    """All findings, including positive ones. Pure."""
    yield from _environments(settings, machine)
    if "podman" in settings.containers.runtimes:
        yield from _images(machine)


def _cgroups() -> Iterator[Finding]:
    tree = find_cgroups("doctor")
    if isinstance(tree, CgroupsUnavailable):
        yield Finding("cgroups", "warning", tree.reason, "Memory and cpu limits of jobs are not enforced.")
        return
    missing = {"memory", "cpu", "pids"} - tree.controllers
    description = tree.description
    tree.remove()
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
    installed = [name for name, program in tools.items() if shutil.which(program, path=TOOL_PATH)]
    missing = [name for name in tools if name not in installed]
    hint = f"Not installed: {', '.join(missing)}." if missing else None
    if installed:
        yield Finding("containers", "ok", f"Jobs can be isolated by {', '.join(installed)}.", hint)
    elif settings.containers.required or settings.containers.required_for:
        yield Finding("containers", "problem", "Containers are required, but no runtime is installed.", hint)
    else:
        yield Finding("containers", "ok", "Jobs run as plain processes.", hint)
    if "podman" in installed and not shutil.which("catatonit", path=TOOL_PATH):
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
        yield Finding(check, "ok", "Environments are built by uv; without root, users do not share them.")
        return
    if not machine.has_program("bwrap"):
        message = "bubblewrap is missing, so environments are built for each user separately, not once for all."
        yield Finding(check, "warning", message, "apt install bubblewrap")
        return
    yield _builder(settings, machine)


def _builder(settings: Settings, machine: HostFacts) -> Finding:
    name, check = settings.environments.builder, "environments"
    account = next((account for account in machine.accounts if account.name == name), None)
    hint = f"useradd --system --shell /usr/sbin/nologin {name}"
    if account is None:
        message = (
            f"There is no account {name}, so environments are built for each user separately, not once for all."
        )
        return Finding(check, "warning", message, hint)
    if account.uid == 0:
        message = f"{name} is root, and must not build environments for other users."
        return Finding(check, "problem", message, f"Set builder in [environments]. {hint}")
    if not account.shell.endswith(("nologin", "false")):
        message = f"{name} builds environments for all users, but can log in."
        return Finding(check, "warning", message, f"usermod --shell /usr/sbin/nologin {name}")
    return Finding(check, "ok", f"Environments are built by uv as {name}, once for all users.")


def _images(machine: HostFacts) -> Iterator[Finding]:
    check = "images"
    if not machine.has_program("podman"):
        message = "podman is missing, so jobs cannot run in images, and none can be built."
        yield Finding(check, "warning", message, "apt install podman crun catatonit uidmap slirp4netns")
        return
    if not machine.has_program("newuidmap"):
        message = "newuidmap is missing, so only root can use podman."
        yield Finding(check, "warning", message, "apt install uidmap")
        return
    yield _subuid_ranges(machine)


def _subuid_ranges(machine: HostFacts) -> Finding:
    users = [account for account in machine.accounts if account.is_login_user]
    known = machine.subuid_owners
    without = [] if known is None else [user for user in users if not known & {user.name, str(user.uid)}]
    if not without:
        return Finding("images", "ok", "podman can run images, and all users have subordinate user ids.")
    names = ", ".join(user.name for user in without[:_MAX_NAMES])
    more = f" and {len(without) - _MAX_NAMES} more" if len(without) > _MAX_NAMES else ""
    hint = (
        f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {without[0].name} "
        "(a range that no other user has in /etc/subuid)"
    )
    message = f"podman needs a range of subordinate user ids; users without one: {names}{more}."
    return Finding("images", "warning", message, hint)


def _this_machine() -> HostFacts:
    accounts = tuple(HostAccount(entry.pw_name, entry.pw_uid, entry.pw_shell) for entry in pwd.getpwall())
    return HostFacts(_is_installed, os.geteuid() == 0, accounts, _known_ranges())


def _is_installed(program: str) -> bool:
    """Whether it is installed on this machine; uv may be a Python package."""
    is_on_path = shutil.which(program, path=TOOL_PATH) is not None
    return is_on_path or (program == "uv" and importlib.util.find_spec("uv") is not None)


def _known_ranges() -> frozenset[str] | None:
    """Users with a range in both files; None: the ranges are managed elsewhere (nsswitch)."""
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
