"""Destination folder: saves downloaded files in a folder of this user. No link in it is followed: on a shared
machine another user may have put it there.
"""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from heliostat.errors import Invalid

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HINT = "Name a new folder, or one of yours: --to."


class DestinationFolder:
    """A new folder, or an existing one of this user. It is opened once, so that all files are saved in the same
    one, and closed at the end of the block."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._top: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._top is not None:
            os.close(self._top)
            self._top = None

    def save(self, parts: Sequence[str], content: Iterable[bytes]) -> Path:
        """Write the file at this path below the folder; an existing file is replaced when the new one is complete.
        Raises Invalid."""
        target = self.path.joinpath(*parts)
        try:
            with self._open_folder(parts[:-1]) as folder:
                _replace_file(folder, parts[-1], content)
        except OSError as error:
            raise Invalid(f"{target} cannot be written: {error.strerror}.", _HINT) from error
        return target

    @contextlib.contextmanager
    def _open_folder(self, parts: Sequence[str]) -> Iterator[int]:
        if self._top is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._top = _enter(None, str(self.path), self.path)
        with contextlib.ExitStack() as stack:
            path, folder = self.path, self._top
            for name in parts:
                path /= name
                folder = _enter(folder, name, path)
                stack.callback(os.close, folder)
            yield folder


def _enter(parent: int | None, name: str, path: Path) -> int:
    """Create or open the folder. Only the top folder may be a link, and only one of this user."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    _check_owner(found, path)
    is_link = parent is None and stat.S_ISLNK(found.st_mode)
    descriptor = os.open(name, _FOLDER_FLAGS | (0 if is_link else os.O_NOFOLLOW), dir_fd=parent)
    try:
        opened = os.fstat(descriptor)
        _check_owner(opened, path)
        _check_same(found, os.stat(name, follow_symlinks=False) if is_link else opened, path)
    except (Invalid, OSError):
        os.close(descriptor)
        raise
    return descriptor


def _check_same(found: os.stat_result, now: os.stat_result, path: Path) -> None:
    if not os.path.samestat(found, now):
        raise Invalid(f"The folder {path} was replaced while it was opened.", _HINT)


def _check_owner(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid():
        raise Invalid(f"The folder {path} belongs to another user.", _HINT)


def _replace_file(folder: int, name: str, content: Iterable[bytes]) -> None:
    partial = f".{name[:60]}.part"  # the name may be as long as the file system allows, in bytes
    with contextlib.suppress(FileNotFoundError):
        os.unlink(partial, dir_fd=folder)
    try:
        with open(os.open(partial, _NEW_FILE_FLAGS, 0o666, dir_fd=folder), "wb") as file:
            file.writelines(content)
        os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial, dir_fd=folder)
