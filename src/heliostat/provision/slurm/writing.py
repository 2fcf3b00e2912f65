"""Writes the files and folders of a Slurm that we set up: whole or not at all, never over what is not ours."""

import os
import pwd
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path

from heliostat.errors import Conflict
from heliostat.provision.slurm.configuration import (
    SLURMD_UNIT,
    Origin,
    origin_of,
    shared_files,
    slurmd_unit,
    slurmdbd_conf,
)
from heliostat.provision.slurm.daemons import machines_here
from heliostat.provision.slurm.description import Description
from heliostat.provision.slurm.layout import Layout

HIDDEN = "(made when it is applied)"
_PASSWORD = re.compile(r"^StoragePass=(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Wanted:
    path: Path
    text: str
    mode: int = 0o644
    owner: str = "root"


@dataclass(frozen=True)
class Difference:
    path: str
    state: str  # new, same, different, or why it is not touched: changed, foreign; hidden, from who looks
    diff: str  # what would change; a password never shows


def wanted_files(described: Description, layout: Layout, password: str) -> list[Wanted]:
    """That of the password first: who comes back after a crash finds it there."""
    folder = Path(layout.conf_folder)
    secret = Wanted(folder / "slurmdbd.conf", slurmdbd_conf(described, layout, password), 0o600, "slurm")
    shared = [Wanted(folder / name, text) for name, text in shared_files(described, layout).items()]
    if layout.prefix or not machines_here(described):
        return [secret, *shared]
    return [secret, *shared, Wanted(Path(layout.unit_folder) / SLURMD_UNIT, slurmd_unit())]


def known_password(layout: Layout) -> str | None:
    """Of the database, from a file that we made before."""
    try:
        text = _read(Path(layout.conf_folder) / "slurmdbd.conf")
    except PermissionError:
        return None
    found = _PASSWORD.search(text) if text and origin_of(text) is Origin.OURS else None
    return found[1] if found else None


def difference(wanted: Wanted) -> Difference:
    try:
        there = _read(wanted.path)
    except PermissionError:
        return Difference(str(wanted.path), "hidden", "")
    if there is None:
        return Difference(str(wanted.path), "new", _shown("", wanted))
    origin = origin_of(there)
    if origin is not Origin.OURS:
        return Difference(str(wanted.path), origin.value, "")
    if there == wanted.text:
        return Difference(str(wanted.path), "same", "")
    return Difference(str(wanted.path), "different", _shown(there, wanted))


def refuse_foreign(files: list[Wanted]) -> None:
    """Raises Conflict before anything is changed."""
    found = {one.path: one.state for one in map(difference, files)}
    for path, state in found.items():
        move = f"mv {path} {path}.old"
        if state == Origin.FOREIGN:
            hint = f'Is there a Slurm already? Then set engine = "slurm" and use it. If it is not needed: {move}'
            raise Conflict(f"{path} was not made by Heliostat; nothing was changed.", hint)
        if state == Origin.CHANGED:
            hint = f"Put the change into [settings] of nodes.toml, then move the file away: {move}"
            raise Conflict(f"{path} was changed by hand; nothing was changed now.", hint)


def write(wanted: Wanted) -> str | None:
    """What was done, in words; None: it was so already. The old one is kept beside it."""
    state = difference(wanted).state
    if state == "same":
        _own(wanted.path, wanted)
        return None
    kept = ""
    if state == "different":
        copy = wanted.path.with_name(f"{wanted.path.name}.until-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z")
        os.link(wanted.path, copy)
        kept = f"; the old one is {copy}"
    write_whole(wanted.path, wanted.text.encode("utf-8"), wanted.mode, wanted.owner)
    return f"Wrote {wanted.path}{kept}."


def write_whole(path: Path, content: bytes, mode: int, owner: str) -> None:
    """All of it or nothing; nobody else can read it on the way."""
    draft = path.with_name(path.name + ".draft")
    draft.unlink(missing_ok=True)
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(content)
        who = pwd.getpwnam(owner)
        os.fchown(file.fileno(), who.pw_uid, who.pw_gid)
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def _own(path: Path, wanted: Wanted) -> None:
    who = pwd.getpwnam(wanted.owner)
    os.chown(path, who.pw_uid, who.pw_gid)
    path.chmod(wanted.mode)


def _shown(before: str, wanted: Wanted) -> str:
    old, new = (_PASSWORD.sub(f"StoragePass={HIDDEN}", text).splitlines() for text in (before, wanted.text))
    name = str(wanted.path)
    return "\n".join(unified_diff(old, new, name if before else "/dev/null", name, lineterm=""))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None


def make_folders(layout: Layout) -> None:
    """Those that are there keep what is in them. On the machine itself the packages have made the rest."""
    more = _of_others(layout) if layout.prefix else ((layout.unit_folder, "root", 0o755),)
    for path, owner, mode in (*_of_slurm(layout), *more):
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        who = pwd.getpwnam(owner)
        os.chown(folder, who.pw_uid, who.pw_gid)
        folder.chmod(mode)


def _of_slurm(layout: Layout) -> tuple[tuple[str, str, int], ...]:
    return (
        (layout.conf_folder, "root", 0o755),
        (str(Path(layout.key).parent), "munge", 0o700),
        (layout.state, "slurm", 0o700),
        (layout.spool, "root", 0o755),
        (layout.logs, "slurm", 0o755),
    )


def _of_others(layout: Layout) -> tuple[tuple[str, str, int], ...]:
    return (
        (str(Path(layout.munge_socket).parent), "munge", 0o755),
        (f"{layout.prefix}/var/log/munge", "munge", 0o700),
        (f"{layout.prefix}/var/lib/munge", "munge", 0o711),
        (str(Path(layout.database_socket).parent), "mysql", 0o755),
    )
