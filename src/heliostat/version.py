"""The version, with the commit: `0.1.0+gabc1234`.

A built package contains the file `COMMIT`. A git checkout is read directly, without git: an editable installation
would otherwise keep the commit of its installation. The build executes this file, so it imports nothing of ours.
"""

import re
from pathlib import Path

RELEASE = "0.1.0"
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_SHOWN_DIGITS = 7


def read_commit(package: Path) -> str | None:
    """The commit of the package in this folder; None: unknown."""
    if recorded := _read(package / "COMMIT"):
        return _checked(recorded)
    checkout = package.parent.parent
    is_checkout = package.parent.name == "src" and (checkout / "pyproject.toml").is_file()
    return _read_head(checkout / ".git") if is_checkout else None


def make_version(commit: str | None) -> str:
    return RELEASE if commit is None else f"{RELEASE}+g{commit[:_SHOWN_DIGITS]}"


def _read_head(git: Path) -> str | None:
    if git.is_file():  # a worktree: `gitdir: PATH`
        git = git.parent / _read(git).removeprefix("gitdir:").strip()
    head = _read(git / "HEAD")
    if not head.startswith("ref:"):
        return _checked(head)
    name = head.removeprefix("ref:").strip()
    common = git / (_read(git / "commondir") or ".")
    return _checked(_read(common / name)) or _find_packed(_read(common / "packed-refs"), name)


def _find_packed(text: str, name: str) -> str | None:
    """From lines `COMMIT refs/heads/main`."""
    pairs = (line.partition(" ") for line in text.splitlines())
    return next((_checked(commit) for commit, _, ref in pairs if ref == name), None)


def _checked(text: str) -> str | None:
    return text if _COMMIT.fullmatch(text) else None


def _read(path: Path) -> str:
    """Empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


__version__ = make_version(read_commit(Path(__file__).resolve().parent))
