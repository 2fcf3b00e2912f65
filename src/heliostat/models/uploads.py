"""Uploaded folders: files identified by their contents, and their paths in an installation."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

MAX_UPLOAD_FILES = 50_000
MIN_COUNTED_BYTES = 16 * 1024  # of a file, in quotas: ext4 has one inode for this much space
_MAX_PATH_BYTES = 3000  # leaves room for the folder of the job in the limit of Linux
_MAX_NAME_BYTES = 255
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class TreeFile:
    path: str  # below the folder
    digest: str  # sha256 of its content
    size_bytes: int
    is_executable: bool = False


@dataclass(frozen=True, slots=True)
class TreeLink:
    """A symbolic link to something in the same folder."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class FileTree:
    """Two folders with the same files are the same tree, wherever and whenever they were uploaded."""

    files: tuple[TreeFile, ...]
    links: tuple[TreeLink, ...] = ()
    blobs: Mapping[str, int] = field(init=False, repr=False, compare=False)  # size of each distinct content

    def __post_init__(self) -> None:
        object.__setattr__(self, "blobs", {file.digest: file.size_bytes for file in self.files})

    @property
    def id(self) -> str:
        return hashlib.sha256(tree_to_text(self).encode()).hexdigest()

    @property
    def size_bytes(self) -> int:
        """Size of all files; equal contents count several times."""
        return sum(file.size_bytes for file in self.files)

    @property
    def copy_bytes(self) -> int:
        """What a copy of the folder counts in quotas."""
        return sum(counted_bytes(file.size_bytes) for file in self.files) + MIN_COUNTED_BYTES * len(self.links)


def counted_bytes(size_bytes: int) -> int:
    """What a file counts in quotas: many small files use up a file system, too."""
    return max(size_bytes, MIN_COUNTED_BYTES)


def make_tree(files: Iterable[TreeFile], links: Iterable[TreeLink] = ()) -> FileTree:
    """Sorted, so that equal trees are equal. Raises ValueError if the tree cannot be created on disk."""
    tree = FileTree(
        tuple(sorted(files, key=lambda file: file.path)), tuple(sorted(links, key=lambda link: link.path))
    )
    if len(tree.files) + len(tree.links) > MAX_UPLOAD_FILES:
        raise ValueError(
            f"an upload may have {MAX_UPLOAD_FILES} files, this one has {len(tree.files) + len(tree.links)}"
        )
    paths = [*(file.path for file in tree.files), *(link.path for link in tree.links)]
    for path in paths:
        _check_path(path)
    _check_no_overlap(paths)
    _check_sizes(tree.files)
    for link in tree.links:
        if is_link_outside(link.path, link.target):
            raise ValueError(f"the link {link.path!a} points outside of the folder")
    return tree


def is_link_outside(path: str, target: str) -> bool:
    """Whether a link at this path points outside of the folder."""
    if not target or target.startswith("/") or "\0" in target or len(target.encode()) > _MAX_PATH_BYTES:
        return True
    depth = path.count("/")
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            return True
    return False


def largest_files(files: Sequence[TreeFile], limit: int = 5) -> list[TreeFile]:
    return sorted(files, key=lambda file: -file.size_bytes)[:limit]


def tree_to_text(tree: FileTree) -> str:
    files = [[file.path, file.digest, file.size_bytes, file.is_executable] for file in tree.files]
    links = [[link.path, link.target] for link in tree.links]
    return json.dumps({"files": files, "links": links}, separators=(",", ":"))


def text_to_tree(text: str) -> FileTree:
    values = json.loads(text)
    return FileTree(
        tuple(TreeFile(*file) for file in values["files"]), tuple(TreeLink(*link) for link in values["links"])
    )


def user_upload_folder(uploads: str, user: str) -> str:
    """Uploads of different users are separate."""
    return f"{uploads}/{quote(user, safe='').replace('.', '%2E')}"


def tree_path(folder: str, tree_id: str) -> str:
    return f"{folder}/trees/{tree_id}"


def blob_path(folder: str, digest: str) -> str:
    return f"{folder}/blobs/{digest[:2]}/{digest}"


def _check_path(path: str) -> None:
    parts = path.split("/")
    if len(path.encode()) > _MAX_PATH_BYTES or len(parts) > _MAX_DEPTH:
        raise ValueError(f"the path {path[:60]!a}… is too long")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"{path[:100]!a} is not a path below the folder")
    if any(len(part.encode()) > _MAX_NAME_BYTES for part in parts):
        raise ValueError(f"a name in {path[:60]!a}… is longer than {_MAX_NAME_BYTES} bytes")


def _check_no_overlap(paths: Sequence[str]) -> None:
    """No path occurs twice, or below a path that is not a folder."""
    unique = set(paths)
    if len(unique) < len(paths):
        raise ValueError("a path occurs twice")
    folders: set[str] = set()
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent and parent not in folders:
            if parent in unique:
                raise ValueError(f"{parent[:100]!a} cannot be both a file and a folder")
            folders.add(parent)
            parent = parent.rpartition("/")[0]


def _check_sizes(files: Iterable[TreeFile]) -> None:
    known: dict[str, int] = {}
    for file in files:
        if known.setdefault(file.digest, file.size_bytes) != file.size_bytes:
            raise ValueError(f"{file.path!a} has a different size than a file with the same content")
