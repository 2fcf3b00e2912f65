"""Writes the files and folders of a Slurm that we set up: whole or not at all, never over what is not ours."""

import os
import pwd
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path

from heliostat.errors import Conflict
from heliostat.provision.slurm.cluster_spec import ClusterSpec
from heliostat.provision.slurm.configuration import (
    SLURMD_UNIT_FILE,
    FileOrigin,
    detect_origin,
    render_shared_files,
    render_slurmd_unit,
    render_slurmdbd_conf,
)
from heliostat.provision.slurm.daemons import nodes_on_controller
from heliostat.provision.slurm.paths import SlurmPaths

PASSWORD_PLACEHOLDER = "(made when it is applied)"  # noqa: S105 - no secret
_PASSWORD = re.compile(r"^StoragePass=(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class DesiredFile:
    path: Path
    text: str
    mode: int = 0o644
    owner: str = "root"


@dataclass(frozen=True)
class FileDifference:
    path: str
    state: str  # new, same, different, or why it is not touched: changed, foreign; hidden, from who looks
    diff: str  # what would change; a password never shows


def desired_files(described: ClusterSpec, layout: SlurmPaths, password: str) -> list[DesiredFile]:
    """That of the password first: who comes back after a crash finds it there."""
    folder = Path(layout.config_folder)
    secret = DesiredFile(
        folder / "slurmdbd.conf", render_slurmdbd_conf(described, layout, password), 0o600, "slurm"
    )
    shared = [DesiredFile(folder / name, text) for name, text in render_shared_files(described, layout).items()]
    if layout.prefix or not nodes_on_controller(described):
        return [secret, *shared]
    return [secret, *shared, DesiredFile(Path(layout.unit_folder) / SLURMD_UNIT_FILE, render_slurmd_unit())]


def read_existing_password(layout: SlurmPaths) -> str | None:
    """Of the database, from a file that we made before."""
    try:
        text = _read(Path(layout.config_folder) / "slurmdbd.conf")
    except PermissionError:
        return None
    found = _PASSWORD.search(text) if text and detect_origin(text) is FileOrigin.OURS else None
    return found[1] if found else None


def compare_file(wanted: DesiredFile) -> FileDifference:
    try:
        there = _read(wanted.path)
    except PermissionError:
        return FileDifference(str(wanted.path), "hidden", "")
    if there is None:
        return FileDifference(str(wanted.path), "new", _shown("", wanted))
    origin = detect_origin(there)
    if origin is not FileOrigin.OURS:
        return FileDifference(str(wanted.path), origin.value, "")
    if there == wanted.text:
        return FileDifference(str(wanted.path), "same", "")
    return FileDifference(str(wanted.path), "different", _shown(there, wanted))


def check_no_foreign_files(files: list[DesiredFile]) -> None:
    """Raises Conflict before anything is changed."""
    found = {one.path: one.state for one in map(compare_file, files)}
    for path, state in found.items():
        move = f"mv {path} {path}.old"
        if state == FileOrigin.FOREIGN:
            hint = (
                f'Is there a Slurm already? Then use it: engine = "slurm" in [server]. If it is not needed: {move}'
            )
            raise Conflict(f"{path} was not made by Heliostat; nothing was changed.", hint)
        if state == FileOrigin.CHANGED:
            hint = f"Put the change into [settings] of nodes.toml, then move the file away: {move}"
            raise Conflict(f"{path} was changed by hand; nothing was changed now.", hint)


def write_file(wanted: DesiredFile) -> str | None:
    """What was done, in words; None: it was so already. The old one is kept beside it."""
    state = compare_file(wanted).state
    if state == "same":
        _own(wanted.path, wanted)
        return None
    kept = ""
    if state == "different":
        copy = wanted.path.with_name(f"{wanted.path.name}.until-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z")
        os.link(wanted.path, copy)
        kept = f"; the old one is {copy}"
    write_file_atomically(wanted.path, wanted.text.encode("utf-8"), wanted.mode, wanted.owner)
    return f"Wrote {wanted.path}{kept}."


def write_file_atomically(path: Path, content: bytes, mode: int, owner: str) -> None:
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


def _own(path: Path, wanted: DesiredFile) -> None:
    who = pwd.getpwnam(wanted.owner)
    os.chown(path, who.pw_uid, who.pw_gid)
    path.chmod(wanted.mode)


def _shown(before: str, wanted: DesiredFile) -> str:
    old, new = (
        _PASSWORD.sub(f"StoragePass={PASSWORD_PLACEHOLDER}", text).splitlines() for text in (before, wanted.text)
    )
    name = str(wanted.path)
    return "\n".join(unified_diff(old, new, name if before else "/dev/null", name, lineterm=""))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None


def make_folders(layout: SlurmPaths) -> None:
    """Those that are there keep what is in them. On the machine itself the packages have made the rest."""
    more = _of_others(layout) if layout.prefix else ((layout.unit_folder, "root", 0o755),)
    for path, owner, mode in (*_of_slurm(layout), *more):
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        who = pwd.getpwnam(owner)
        os.chown(folder, who.pw_uid, who.pw_gid)
        folder.chmod(mode)


def _of_slurm(layout: SlurmPaths) -> tuple[tuple[str, str, int], ...]:
    return (
        (layout.config_folder, "root", 0o755),
        (str(Path(layout.munge_key).parent), "munge", 0o700),
        (layout.controller_state_folder, "slurm", 0o700),
        (layout.slurmd_spool_folder, "root", 0o755),
        (layout.log_folder, "slurm", 0o755),
    )


def _of_others(layout: SlurmPaths) -> tuple[tuple[str, str, int], ...]:
    return (
        (str(Path(layout.munge_socket).parent), "munge", 0o755),
        (f"{layout.prefix}/var/log/munge", "munge", 0o700),
        (f"{layout.prefix}/var/lib/munge", "munge", 0o711),
        (str(Path(layout.database_socket).parent), "mysql", 0o755),
    )
