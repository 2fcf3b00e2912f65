"""What of a folder is to be uploaded: all but what .gitignore and .heliostatignore name."""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heliostat.errors import Invalid
from heliostat.models.uploads import Tree, TreeFile, TreeLink, leaves, make_tree

IGNORE_FILES = (".gitignore", ".heliostatignore")  # where both speak of a path, the later one counts
_NEVER = frozenset({".git", ".hg", ".svn"})
_USUALLY_NOT = ["__pycache__/", "*.pyc", ".venv/", "node_modules/", ".ipynb_checkpoints/", ".DS_Store"]
_PIECE_BYTES = 2**20


@dataclass(frozen=True)
class ScannedFolder:
    path: str
    tree: Tree

    def files_by_digest(self) -> dict[str, TreeFile]:
        return {file.digest: file for file in self.tree.files}


def scan_folder(folder: str | os.PathLike[str]) -> ScannedFolder:
    """Raises Invalid for what cannot be uploaded."""
    root = os.path.abspath(os.path.expanduser(os.fspath(folder)))
    if not os.path.isdir(root):
        raise Invalid(f"{root} is not a folder.", "Name the folder with your code: --upload .")
    files: list[TreeFile] = []
    links: list[TreeLink] = []
    for path, about in _walk(root, "", [("", _spec(_USUALLY_NOT))]):
        if stat.S_ISLNK(about.st_mode):
            links.append(_link(root, path))
        elif stat.S_ISREG(about.st_mode):
            files.append(_file(root, path, about))
        else:
            raise Invalid(
                f"{path} is neither a file, a folder nor a link.", "Name it in .heliostatignore to leave it out."
            )
    try:
        return ScannedFolder(root, make_tree(files, links))
    except ValueError as error:
        raise Invalid(
            f"{root} cannot be uploaded: {error}.", "Name in .heliostatignore what to leave out."
        ) from error


def pieces(root: str, file: TreeFile) -> Iterator[bytes]:
    """As many bytes as it had when it was looked at. Raises Invalid when it has changed since."""
    left = file.size_bytes
    with open(os.path.join(root, file.path), "rb") as opened:
        while left and (data := opened.read(min(_PIECE_BYTES, left))):
            left -= len(data)
            yield data
    if left:
        raise _changed(file.path)


_Specs = list[tuple[str, Any]]


def _walk(root: str, below: str, specs: _Specs) -> Iterator[tuple[str, os.stat_result]]:
    specs = specs + _specs_of(root, below)
    with os.scandir(os.path.join(root, below)) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        _check_name(path)
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in _NEVER or _is_ignored(f"{path}/" if is_folder else path, specs):
            continue
        if is_folder:
            yield from _walk(root, path, specs)
        else:
            yield path, entry.stat(follow_symlinks=False)


def _specs_of(root: str, below: str) -> _Specs:
    lines: list[str] = []
    for name in IGNORE_FILES:
        path = os.path.join(root, below, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                lines += file.read().splitlines()
    return [(f"{below}/" if below else "", _spec(lines))] if lines else []


def _spec(lines: list[str]) -> Any:
    """The library is loaded only by those who upload something."""
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def _is_ignored(path: str, specs: _Specs) -> bool:
    """The word of the file nearest to it counts."""
    for base, spec in reversed(specs):
        said: bool | None = spec.check_file(path.removeprefix(base)).include
        if said is not None:
            return said
    return False


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Invalid(
            f"The name {path!a} is not UTF-8.", "Rename it, or name it in .heliostatignore by a pattern."
        ) from None


def _link(root: str, path: str) -> TreeLink:
    """It must stay in the folder as it is written, and also when all links are followed."""
    target = os.readlink(os.path.join(root, path))
    end = os.path.realpath(os.path.join(root, path))
    if leaves(path, target) or not (end + "/").startswith(os.path.realpath(root) + "/"):
        raise Invalid(
            f"The link {path} -> {target} leaves the folder.",
            "Name it in .heliostatignore to leave it out, or put the file itself there.",
        )
    return TreeLink(path, target)


def _file(root: str, path: str, about: os.stat_result) -> TreeFile:
    digest = hashlib.sha256()
    size = 0
    try:
        with open(os.path.join(root, path), "rb") as opened:
            while data := opened.read(_PIECE_BYTES):
                digest.update(data)
                size += len(data)
    except OSError as error:
        raise Invalid(
            f"{path} cannot be read: {error.strerror}.", "Name it in .heliostatignore to leave it out."
        ) from error
    return TreeFile(path, digest.hexdigest(), size, bool(about.st_mode & 0o100))


def _changed(path: str) -> Invalid:
    return Invalid(f"{path} has changed while it was uploaded.", "Try again when nothing writes to it.")
