"""What a script of ours has left in the folder of its job, which is a person's: read with care."""

import os
import stat

_MOST_WORDS_BYTES = 4000
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


def last_words(work: str) -> str:
    """What the tool said last, as one text without signs that could steer a terminal."""
    text = read_safely(f"{work}/why", _MOST_WORDS_BYTES) or ""
    lines = [" ".join("".join(sign for sign in line if sign.isprintable()).split()) for line in text.splitlines()]
    return "\n".join(line for line in lines if line)


def read_safely(path: str, most_bytes: int, *below: str) -> str | None:
    """A file in a folder that is somebody's, or `below` it, name by name: no link, and nothing that blocks."""
    try:
        descriptor = open_below(path, *below)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            return None
        return file.read(most_bytes).decode("utf-8", "replace") or None
