"""Files in folders that are somebody's, who may have put anything there: no link is followed, nothing blocks."""

import os
import stat

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_below(path: str, *names: str) -> int:
    """A descriptor of what lies there. Whoever owns a folder on the way may swap what is in it for a link: none is
    followed. Raises OSError."""
    found = os.open(path, _FLAGS)
    for name in names:
        above = found
        try:
            found = os.open(name, _FLAGS, dir_fd=above)
        finally:
            os.close(above)
    return found


def read_below(path: str, most_bytes: int, *names: str) -> bytes:
    """Of a file there, or below it, name by name; nothing if it is not there, no file, or has other names."""
    try:
        descriptor = open_below(path, *names)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        return file.read(most_bytes) if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 else b""
