"""The end of a relay that runs inside a job, as one file: a line of the shell, then a zip that Python runs."""

import io
import zipfile
from functools import cache
from pathlib import Path
from shlex import quote

from heliostat.engines.environment import DEFAULT_PATH

_MODULES = ("frames", "flow", "listeners", "members", "inside")
_PACKAGES = ("heliostat", "heliostat/engines", "heliostat/engines/relay")
_MAIN = "from heliostat.engines.relay.inside import main\n\nmain()\n"


def packed(mark: str) -> bytes:
    """To be run by a shell in the job. `mark` is that of the attempt's processes."""
    lines = ("#!/bin/sh", f"export PATH={DEFAULT_PATH}", f'exec python3 -I -B "$0" {quote(mark)}', "")
    return "\n".join(lines).encode() + _zipped()


@cache
def _zipped() -> bytes:
    file, folder = io.BytesIO(), Path(__file__).parent
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("__main__.py", _MAIN)
        for package in _PACKAGES:
            made.writestr(f"{package}/__init__.py", "")
        for name in _MODULES:
            made.writestr(f"{_PACKAGES[-1]}/{name}.py", (folder / f"{name}.py").read_bytes())
    return file.getvalue()
