"""What a script of ours has left in the folder of its job, which is a person's: read with care."""

import os
import stat

_MOST_WORDS_BYTES = 4000


def last_words(work: str) -> str:
    """What the tool said last, as one text without signs that could steer a terminal."""
    text = read_safely(f"{work}/why", _MOST_WORDS_BYTES) or ""
    lines = [" ".join("".join(sign for sign in line if sign.isprintable()).split()) for line in text.splitlines()]
    return "\n".join(line for line in lines if line)


def read_safely(path: str, most_bytes: int) -> str | None:
    """A file in a folder that is somebody's: no link, and nothing that blocks."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            return None
        return file.read(most_bytes).decode("utf-8", "replace") or None
