"""Which files of a node a container may see: what admins allow."""

import os
import posixpath
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from heliostat.models import Mount
from heliostat.models.jobs import check_mount_path

_NEVER = ("/proc", "/sys", "/dev", "/run", "/var/run", "/boot", "/etc")


class MountForbidden(Exception):
    """This may not be mounted; says why, without telling more of the node than was asked."""


@dataclass(frozen=True, slots=True)
class MountRoot:
    """A folder of which everything may be mounted."""

    path: str
    read_only: bool = False


def expand_mount_roots(templates: Sequence[str], names: Mapping[str, str]) -> list[MountRoot]:
    """`/srv/{project}:ro` with the names filled in; what cannot be filled in is left out."""
    roots = []
    for template in templates:
        path, _, mode = template.partition(":")
        for name, value in names.items():
            path = path.replace(f"{{{name}}}", value)
        if "{" not in path and path.startswith("/"):
            roots.append(MountRoot(posixpath.normpath(path), mode == "ro"))
    return roots


def resolve_mount(mount: Mount, roots: Sequence[MountRoot], private: str) -> Mount:
    """The mount with its links followed, and read-only where it must be. Raises MayNot.

    Where a path leads is not told to who may not go there: it is held against the roots as it is written first.
    `private` is a folder nobody may mount, nor what holds it: the installation's.
    """
    if not any(_is_below(mount.source, (root.path,)) for root in roots):
        raise MountForbidden(f"{mount.source} may not be mounted")
    real = os.path.realpath(mount.source)
    found = [root for root in roots if _is_below(real, (os.path.realpath(root.path),))]
    if not found:
        raise MountForbidden(f"{mount.source} leads to a place that may not be mounted")
    if real == "/" or _is_below(real, _NEVER) or _overlaps(real, os.path.realpath(private)):
        raise MountForbidden(f"{mount.source} may never be mounted")
    if not _is_plain(real):
        raise MountForbidden(f"{mount.source} is neither a file nor a folder")
    _check_real(mount.source, real)
    _check_real(mount.target, mount.target)
    read_only = mount.read_only or all(root.read_only for root in found)
    return replace(mount, source=real, read_only=read_only)


def _check_real(path: str, real: str) -> None:
    try:
        check_mount_path(real)
    except ValueError:
        raise MountForbidden(f"{path} leads to a name that cannot be mounted") from None


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(folder in ("/", path) or path.startswith(f"{folder}/") for folder in folders)


def _overlaps(path: str, private: str) -> bool:
    return _is_below(path, (private,)) or _is_below(private, (path,))


def _is_plain(path: str) -> bool:
    """What is not there, or hidden from us, is for the tool to say, which has the user's own rights."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return True
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)
