"""Folders nested deeper than Python recurses, and than a path can name."""

import os
from pathlib import Path

DEPTH = 3000


def make_deep_folder(top: Path) -> None:
    """3,000 nested folders with a file in the innermost."""
    top.mkdir(parents=True, exist_ok=True)
    at = os.open(top, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("deeper", dir_fd=at)
        below = os.open("deeper", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)
