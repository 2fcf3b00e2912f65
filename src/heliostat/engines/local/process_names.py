"""User and program of a process, as all users may see them."""

import os
import pwd
from functools import lru_cache
from pathlib import Path


def process_user(pid: int) -> str | None:
    """The user of the process; None if it has ended or is hidden."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    try:
        return _user_name(uid)
    except KeyError:
        return f"user {uid}"


def process_program_name(pid: int) -> str | None:
    """The program's name without its arguments, which may hold secrets; None if it has ended or is hidden.

    `cmdline` before `comm`, since PyTorch renames its main thread to "pt_main_thread".
    """
    try:
        first = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        text = os.path.basename(first) or Path(f"/proc/{pid}/comm").read_bytes()
    except OSError:
        return None
    printable = "".join(char for char in text.decode(errors="replace") if char.isprintable())
    return printable[:40] or None


@lru_cache(maxsize=1024)
def _user_name(uid: int) -> str:
    """Cached, since the lookup may use a slow directory server; a KeyError is not cached."""
    return pwd.getpwuid(uid).pw_name
