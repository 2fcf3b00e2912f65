"""This package as one file that any shell can run, on a node or in a container: two lines of sh, then a zipapp.

A job that runs one of the programs has a script that only names it (`#!heliostat session-launcher`). The engine
replaces it by the program itself when it lays out the job's folder.
"""

import io
import zipfile
from functools import cache
from pathlib import Path
from shlex import quote

SESSION_LAUNCHER = "session-launcher"
NOTEBOOK_RUNNER = "notebook-runner"
JUPYTERHUB_LAUNCHER = "jupyterhub-launcher"
RELAY = "relay"


def program_script(program: str) -> str:
    """The script of a job that runs this program. Stored with each job, so the names of programs must stay."""
    return f"#!heliostat {program}\n"


_NAMED = {program_script(name): name for name in (SESSION_LAUNCHER, NOTEBOOK_RUNNER, JUPYTERHUB_LAUNCHER)}


def resolve_script(script: str) -> bytes:
    """What a job's script is on disk: the program that it names, else the script as it is.

    Anyone may submit a script that names a program: it runs as the job's user, like any other script.
    """
    program = _NAMED.get(script)
    return pack_program(program) if program else script.encode("utf-8", "surrogateescape")


def pack_program(program: str, *arguments: str, path: str = "") -> bytes:
    """To be run by a shell in the job. `path` is where to look for Python; empty: the PATH of the job."""
    words = " ".join(map(quote, (program, *arguments)))
    lines = ["#!/bin/sh", f'exec python3 -I -B "$0" {words} "$@"', ""]
    if path:
        lines.insert(1, f"export PATH={quote(path)}")
    return "\n".join(lines).encode() + build_zipapp()


@cache
def build_zipapp() -> bytes:
    """Read once, when the server starts: the installed files may change while it runs."""
    file, folder = io.BytesIO(), Path(__file__).parent
    with zipfile.ZipFile(file, "w") as made:
        _add(made, "heliostat/__init__.py", b"")
        for path in sorted(set(folder.glob("*.py")) - {Path(__file__)}):
            name = path.name if path.name == "__main__.py" else f"heliostat/{folder.name}/{path.name}"
            _add(made, name, path.read_bytes())
    return file.getvalue()


def _add(made: zipfile.ZipFile, name: str, content: bytes) -> None:
    """With a date and a mode that are always the same, so that the same files make the same bytes."""
    made.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
