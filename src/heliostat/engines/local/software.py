"""What this machine lacks to build environments and images, and to run containers: for the doctor."""

import importlib.util
import os
import pwd
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heliostat.config import Settings
from heliostat.engines.local.image_stores import describe_stores
from heliostat.runtimes.contract import TOOL_PATH

Found = tuple[str, str, str, str | None]  # what was looked at, level, sentence, what to do
_FIRST_PERSON = 1000  # numbers below are those of services
_NOBODY = 65_000
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    shell: str

    @property
    def is_person(self) -> bool:
        """Somebody who may log in, and so may have jobs."""
        return _FIRST_PERSON <= self.uid < _NOBODY and not self.shell.endswith(("nologin", "false"))


@dataclass(frozen=True, slots=True)
class Machine:
    """What is to be known of it."""

    has: Callable[[str], bool]  # a program
    is_root: bool
    accounts: tuple[Account, ...]
    has_ranges: (
        frozenset[str] | None
    )  # who has a range of user numbers, by name or number; None: nobody can tell here


def examine_software(settings: Settings) -> list[Found]:
    taken = describe_stores(settings.home.images, settings.containers)
    return [*findings(settings, _this_machine()), *([("image stores", "ok", taken, None)] if taken else [])]


def findings(settings: Settings, machine: Machine) -> Iterator[Found]:
    """Good and bad ones. Pure."""
    yield from _environments(settings, machine)
    if "podman" in settings.containers.runtimes:
        yield from _images(machine)


def _environments(settings: Settings, machine: Machine) -> Iterator[Found]:
    check = "environments"
    if not machine.has("uv"):
        hint = "pip install 'heliostat[environments]', or put uv into /usr/local/bin."
        yield check, "warning", "uv is missing, so no environment can be built (helio run --env FILE).", hint
        return
    if not machine.is_root:
        yield check, "ok", "Environments are built by uv; without root each person's are their own.", None
        return
    if not machine.has("bwrap"):
        message = "bubblewrap is missing, so environments are built for each person anew, not once for all."
        yield check, "warning", message, "apt install bubblewrap"
        return
    yield _builder(settings, machine)


def _builder(settings: Settings, machine: Machine) -> Found:
    name, check = settings.environments.builder, "environments"
    account = next((one for one in machine.accounts if one.name == name), None)
    hint = f"useradd --system --shell /usr/sbin/nologin {name}"
    if account is None:
        message = f"There is no account {name}, so environments are built for each person anew, not once for all."
        return check, "warning", message, hint
    if account.uid == 0:
        return (
            check,
            "problem",
            f"{name} is root, and must not build for others.",
            f"Set builder in [environments]. {hint}",
        )
    if not account.shell.endswith(("nologin", "false")):
        message = f"{name} builds for everybody, and can log in."
        return check, "warning", message, f"usermod --shell /usr/sbin/nologin {name}"
    return check, "ok", f"Environments are built by uv as {name}, once for everybody.", None


def _images(machine: Machine) -> Iterator[Found]:
    check = "images"
    if not machine.has("podman"):
        message = "podman is missing, so jobs cannot run in images, and none can be built."
        yield check, "warning", message, "apt install podman crun catatonit uidmap slirp4netns"
        return
    if not machine.has("newuidmap"):
        message = "newuidmap is missing, so podman runs for nobody but root."
        yield check, "warning", message, "apt install uidmap"
        return
    yield _ranges(machine)


def _ranges(machine: Machine) -> Found:
    people = [one for one in machine.accounts if one.is_person]
    known = machine.has_ranges
    without = [] if known is None else [one for one in people if not known & {one.name, str(one.uid)}]
    if not without:
        return "images", "ok", "podman can run images, and everybody has user numbers for it.", None
    names = ", ".join(one.name for one in without[:_MOST_NAMED])
    more = f" and {len(without) - _MOST_NAMED} more" if len(without) > _MOST_NAMED else ""
    hint = (
        f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {without[0].name} "
        "(numbers nobody else has in /etc/subuid)"
    )
    return "images", "warning", f"podman needs a range of user numbers; without one: {names}{more}.", hint


def _this_machine() -> Machine:
    accounts = tuple(Account(one.pw_name, one.pw_uid, one.pw_shell) for one in pwd.getpwall())
    return Machine(_has, os.geteuid() == 0, accounts, _known_ranges())


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
