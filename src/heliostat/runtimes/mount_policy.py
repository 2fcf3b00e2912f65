"""Mount policy: which paths of a node the admins allow to be mounted into containers."""

import os
import posixpath
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from heliostat.models import Mount
from heliostat.models.jobs import check_mount_path

_FORBIDDEN = ("/proc", "/sys", "/dev", "/run", "/var/run", "/boot", "/etc")


class MountForbidden(Exception):
    """This path must not be mounted; the message is the reason, and reveals nothing else about the node."""


@dataclass(frozen=True, slots=True)
class MountRoot:
    """A folder below which everything may be mounted."""

    path: str
    read_only: bool = False


def expand_mount_roots(templates: Sequence[str], names: Mapping[str, str]) -> list[MountRoot]:
    """`/srv/{project}:ro` with the names substituted; templates with unknown names are skipped."""
    roots = []
    for template in templates:
        path, _, mode = template.partition(":")
        for name, value in names.items():
            path = path.replace(f"{{{name}}}", value)
        if "{" not in path and path.startswith("/"):
            roots.append(MountRoot(posixpath.normpath(path), mode == "ro"))
    return roots


def resolve_mount(mount: Mount, roots: Sequence[MountRoot], private: str) -> Mount:
    """The mount with links resolved, and read-only where required. Raises MountForbidden.

    The path is compared with the roots before its links are resolved, so that targets of links are not revealed to
    users without permission. `private` (the installation's folder) and its parents must never be mounted.
    """
    if not any(_is_below(mount.source, (root.path,)) for root in roots):
        raise MountForbidden(f"{mount.source} is not allowed as a mount")
    real = os.path.realpath(mount.source)
    matching = [root for root in roots if _is_below(real, (os.path.realpath(root.path),))]
    if not matching:
        raise MountForbidden(f"{mount.source} is a link to a path that is not allowed as a mount")
    if real == "/" or _is_below(real, _FORBIDDEN) or _overlaps(real, os.path.realpath(private)):
        raise MountForbidden(f"{mount.source} is never allowed as a mount")
    if not _is_file_or_folder(real):
        raise MountForbidden(f"{mount.source} is neither a file nor a folder")
    _check_real(mount.source, real)
    _check_real(mount.target, mount.target)
    read_only = mount.read_only or all(root.read_only for root in matching)
    return replace(mount, source=real, read_only=read_only)


def _check_real(path: str, real: str) -> None:
    try:
        check_mount_path(real)
    except ValueError:
        raise MountForbidden(f"{path} is a link to a path with characters that cannot be mounted") from None


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(folder in ("/", path) or path.startswith(f"{folder}/") for folder in folders)


def _overlaps(path: str, private: str) -> bool:
    return _is_below(path, (private,)) or _is_below(private, (path,))


def _is_file_or_folder(path: str) -> bool:
    """A regular file or a folder. If the server cannot read the path, the tool decides."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return True
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)
