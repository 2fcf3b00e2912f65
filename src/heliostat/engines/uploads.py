"""Lays out uploaded code as a job's working directory."""

import contextlib
import os
import shutil
from pathlib import Path

from heliostat.engines.environment import Person
from heliostat.models.uploads import Tree, TreeFile, blob_path, folder_of, text_to_tree, tree_path


class Gone(Exception):
    """What was uploaded is not there any more."""


def lay_out_upload(uploads: Path, user: str, upload: str, target: str, person: Person) -> None:
    """Once: what the job changes there stays for its next attempt. A crash in the middle leaves no half of it.

    While it is being made nobody but the server can reach it. Raises Gone, or OSError.
    """
    if os.path.isdir(target):
        return
    source, draft = folder_of(str(uploads), user), f"{target}.draft"
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(draft)
    try:
        with open(tree_path(source, upload), encoding="utf-8") as file:
            tree = text_to_tree(file.read())
        os.mkdir(draft, 0o700)
        _fill(draft, source, tree, person)
    except FileNotFoundError as error:
        raise Gone("the code that was uploaded for it is not there any more") from error
    os.chown(draft, person.uid, person.gid)
    os.rename(draft, target)


def _fill(draft: str, source: str, tree: Tree, person: Person) -> None:
    paths = [*(file.path for file in tree.files), *(link.path for link in tree.links)]
    folders = {part for path in paths for part in _above(path)}
    for folder in sorted(folders):
        _make_folder(f"{draft}/{folder}", person)
    for entry in tree.files:
        _copy(blob_path(source, entry.digest), f"{draft}/{entry.path}", entry, person)
    for link in tree.links:
        os.symlink(link.target, f"{draft}/{link.path}")
        os.chown(f"{draft}/{link.path}", person.uid, person.gid, follow_symlinks=False)


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def _make_folder(path: str, person: Person) -> None:
    os.mkdir(path)
    os.chmod(path, 0o755)
    os.chown(path, person.uid, person.gid)


def _copy(source: str, target: str, entry: TreeFile, person: Person) -> None:
    """A copy of its own: what the job writes there must not reach anybody else's."""
    with open(source, "rb") as original, open(target, "xb") as copy:
        if os.fstat(original.fileno()).st_size != entry.size_bytes:
            raise FileNotFoundError(source)
        shutil.copyfileobj(original, copy, 2**20)
        os.fchmod(copy.fileno(), 0o755 if entry.is_executable else 0o644)
        os.fchown(copy.fileno(), person.uid, person.gid)
