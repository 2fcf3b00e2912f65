"""What a script of ours has left in the folder of its job, which is a person's: read with care."""

from heliostat.engines.peoples_files import read_below

_MOST_WORDS_BYTES = 4000


def last_words(work: str) -> str:
    """What the tool said last, as one text without signs that could steer a terminal."""
    return plain_lines(read_safely(f"{work}/why", _MOST_WORDS_BYTES) or "")


def plain_lines(text: str) -> str:
    """Without signs that could steer a terminal, and without empty lines."""
    lines = [" ".join("".join(sign for sign in line if sign.isprintable()).split()) for line in text.splitlines()]
    return "\n".join(line for line in lines if line)


def read_safely(path: str, most_bytes: int, *below: str) -> str | None:
    """The text of a file in a folder that is somebody's, or `below` it; None: there is none."""
    return read_below(path, most_bytes, *below).decode("utf-8", "replace") or None
