"""What environments and images have in common on a terminal: both are built by jobs, and kept for a while."""

import sys
from collections.abc import Iterable

from heliostat.cli.output import clean
from heliostat.cli.units import size

SHOWN = 12  # signs of a digest


def print_build(texts: Iterable[str], *, quiet: bool) -> None:
    """What a build says, to its end; no sign of it can steer the terminal. Quiet: only to its end."""
    for text in texts:
        if not quiet:
            sys.stderr.write("".join(sign for sign in text if sign.isprintable() or sign == "\n"))


def size_of(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else size(size_bytes / 2**20)


def indented(text: str) -> str:
    return "\n".join(f"  {clean(line)}" for line in text.rstrip("\n").split("\n"))
