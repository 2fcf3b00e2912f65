"""Writes configuration files: atomically, and never over files of others.

Each file begins with a header and a digest, which show that Heliostat wrote it and whether it was edited since.
"""

import hashlib
import os
import pwd
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from enum import StrEnum
from pathlib import Path

from heliostat.errors import Conflict

_HEADER = "# Made by Heliostat ("
_DIGEST = "# sha256 of the rest: "
_HIDDEN = "(hidden)"


class FileOrigin(StrEnum):
    OURS = "ours"
    CHANGED = "changed"  # written by Heliostat and edited since
    FOREIGN = "foreign"


@dataclass(frozen=True)
class DesiredFile:
    path: Path
    text: str
    mode: int = 0o644
    owner: str = "root"
    secret: str = ""  # a pattern whose first group is not shown
    replaces: frozenset[str] = frozenset()  # MD5 digests of defaults of a package, which may be replaced
    has_header: bool = True  # without one, like JSON, any content is replaced


@dataclass(frozen=True)
class FileDifference:
    path: str
    state: str  # new, same, different; not touched: changed, foreign; hidden: the caller cannot read it
    diff: str  # without secrets


def with_header(header: str, body: str) -> str:
    """`header` begins with `# Made by Heliostat (`."""
    return f"{header}\n{_DIGEST}{_digest(body)}\n{body}"


def detect_origin(text: str) -> FileOrigin:
    header, _, rest = text.partition("\n")
    digest, _, body = rest.partition("\n")
    if not header.startswith(_HEADER) or not digest.startswith(_DIGEST):
        return FileOrigin.FOREIGN
    return FileOrigin.OURS if digest == _DIGEST + _digest(body) else FileOrigin.CHANGED


def compare_file(desired: DesiredFile) -> FileDifference:
    path = str(desired.path)
    try:
        existing = read_file(desired.path)
    except PermissionError:
        return FileDifference(path, "hidden", "")
    if existing is None:
        return FileDifference(path, "new", _diff("", desired))
    if existing == desired.text:
        return FileDifference(path, "same", "")
    if not _may_replace(existing, desired):
        return FileDifference(path, detect_origin(existing).value, "")
    return FileDifference(path, "different", _diff(existing, desired))


def check_no_foreign_files(files: list[DesiredFile], foreign_hint: str, changed_hint: str) -> None:
    """Raises Conflict before anything is changed. The hints begin the sentence about moving the file away."""
    for difference in map(compare_file, files):
        path = difference.path
        move = f"mv {path} {path}.old"
        if difference.state == FileOrigin.FOREIGN:
            raise Conflict(f"{path} was not written by Heliostat. Nothing was changed.", f"{foreign_hint} {move}")
        if difference.state == FileOrigin.CHANGED:
            raise Conflict(f"{path} was edited by hand. Nothing was changed.", f"{changed_hint} {move}")


def write_file(desired: DesiredFile) -> str | None:
    """Returns a message for the user; None: nothing changed. A replaced file is kept under another name."""
    state = compare_file(desired).state
    if state == "same":
        _set_owner_and_mode(desired)
        return None
    backup_note = ""
    if state == "different" and desired.has_header:
        backup = desired.path.with_name(f"{desired.path.name}.until-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z")
        os.link(desired.path, backup)
        backup_note = f"; the old file is {backup}"
    write_file_atomically(desired.path, desired.text.encode("utf-8"), desired.mode, desired.owner)
    return f"Wrote {desired.path}{backup_note}."


def write_file_atomically(path: Path, content: bytes, mode: int, owner: str) -> None:
    """Other users cannot read the draft."""
    draft = path.with_name(path.name + ".draft")
    draft.unlink(missing_ok=True)
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(content)
        account = pwd.getpwnam(owner)
        os.fchown(file.fileno(), account.pw_uid, account.pw_gid)
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def make_folder(path: Path, owner: str, mode: int) -> None:
    """An existing folder keeps its content."""
    path.mkdir(parents=True, exist_ok=True)
    account = pwd.getpwnam(owner)
    os.chown(path, account.pw_uid, account.pw_gid)
    path.chmod(mode)


def read_file(path: Path) -> str | None:
    """None: it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None


def _may_replace(existing: str, desired: DesiredFile) -> bool:
    if not desired.has_header or detect_origin(existing) is FileOrigin.OURS:
        return True
    digest = hashlib.md5(existing.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
    return digest in desired.replaces  # dpkg has no other digest


def _set_owner_and_mode(desired: DesiredFile) -> None:
    account = pwd.getpwnam(desired.owner)
    os.chown(desired.path, account.pw_uid, account.pw_gid)
    desired.path.chmod(desired.mode)


def _diff(before: str, desired: DesiredFile) -> str:
    old, new = (_without_secret(text, desired.secret).splitlines() for text in (before, desired.text))
    name = str(desired.path)
    return "\n".join(unified_diff(old, new, name if before else "/dev/null", name, lineterm=""))


def _without_secret(text: str, pattern: str) -> str:
    if not pattern:
        return text
    return re.sub(pattern, lambda match: match[0].replace(match[1], _HIDDEN), text, flags=re.MULTILINE)


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8")).hexdigest()
