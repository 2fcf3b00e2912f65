"""Mounts as people write them."""

import posixpath

from heliostat.models.jobs import Mount

_UNREADABLE = set(":,\"\\'*?[]")  # some tool gives each of these a meaning of its own
_LONGEST = 4000
_TAKEN = ("/proc", "/sys", "/dev")  # where a container has its own


def parse_mount(text: str) -> Mount:
    """`SRC:DST[:ro]`, or `SRC[:ro]` for the same place inside. ValueError says what is wrong."""
    words = text.split(":")
    mode = words.pop() if len(words) > 1 and words[-1] in ("ro", "rw") else "rw"
    if len(words) not in (1, 2):
        raise ValueError("write SRC:DST or SRC:DST:ro")
    mount = Mount(words[0], words[-1], mode == "ro")
    for path in (mount.source, mount.target):
        check_mounted(path)
    if mount.target == "/" or any(f"{mount.target}/".startswith(f"{one}/") for one in _TAKEN):
        raise ValueError(f"nothing can be mounted at {mount.target}")
    return Mount(posixpath.normpath(mount.source), mount.target.rstrip("/"), mount.read_only)


def check_mounted(path: str) -> None:
    """Whether every tool reads this path as it is meant; ValueError says why not."""
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError(f"{path[:100]!a} must be an absolute path")
    if len(path) > _LONGEST or not path.isprintable() or _UNREADABLE & set(path):
        raise ValueError(f"{path[:100]!a} must be short and hold none of {' '.join(sorted(_UNREADABLE))}")
    if posixpath.normpath(path) != path.rstrip("/") and path != "/":
        raise ValueError(f"{path[:100]!a} must be written without . and ..")
