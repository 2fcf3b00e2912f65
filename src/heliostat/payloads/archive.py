"""Payload archive: this package as one file that a shell can run: two lines of sh and a zipapp.

The script of a job that runs one of these programs only names it (`#!heliostat session-launcher`). The engine
replaces it by the packed program when it creates the job's folder.
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
JOB_COMMANDS = "job-commands"


def program_script(program: str) -> str:
    """The script of a job that runs this program. Stored with each job, so program names must never change."""
    return f"#!heliostat {program}\n"


_PROGRAMS = {program_script(name): name for name in (SESSION_LAUNCHER, NOTEBOOK_RUNNER, JUPYTERHUB_LAUNCHER)}


def resolve_script(script: str) -> bytes:
    """The content of a job's script file: the packed program if the script names one, else the script itself.

    Any user may submit a script that names a program: it runs as the job's user, like any other script.
    """
    program = _PROGRAMS.get(script)
    return pack_program(program) if program else script.encode("utf-8", "surrogateescape")


def pack_program(program: str, *arguments: str, path: str = "") -> bytes:
    """A file to be run by a shell in the job. `path`: the PATH for Python; empty: that of the job."""
    words = " ".join(map(quote, (program, *arguments)))
    lines = ["#!/bin/sh", f'exec python3 -I -B "$0" {words} "$@"', ""]
    if path:
        lines.insert(1, f"export PATH={quote(path)}")
    return "\n".join(lines).encode() + build_zipapp()


@cache
def build_zipapp() -> bytes:
    """Built once, when the server starts: the installed files may change while it runs."""
    file, folder = io.BytesIO(), Path(__file__).parent
    with zipfile.ZipFile(file, "w") as archive:
        _add(archive, "heliostat/__init__.py", b"")
        for path in sorted(set(folder.glob("*.py")) - {Path(__file__)}):
            name = path.name if path.name == "__main__.py" else f"heliostat/{folder.name}/{path.name}"
            _add(archive, name, path.read_bytes())
    return file.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Fixed date and mode, so that the same files give the same archive."""
    archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
