"""Destination folder: saves downloaded files in a folder of this user. No link in it is followed: on a shared
machine another user may have put it there.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from heliostat.errors import Invalid

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HINT = "Name a new folder, or one of yours: --to."


class DestinationFolder:
    """A new folder, or an existing one of this user."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

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
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            path = self.path
            folder = _enter(None, str(path), path)
            stack.callback(os.close, folder)
            for name in parts:
                path /= name
                folder = _enter(folder, name, path)
                stack.callback(os.close, folder)
            yield folder


def _enter(parent: int | None, name: str, path: Path) -> int:
    """Create or open the folder. Only the top folder may be a link, and only one of this user."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
        return os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
    _check_owner(os.stat(name, dir_fd=parent, follow_symlinks=False), path)
    descriptor = os.open(name, _FOLDER_FLAGS | (os.O_NOFOLLOW if parent is not None else 0), dir_fd=parent)
    try:
        _check_owner(os.fstat(descriptor), path)
    except Invalid:
        os.close(descriptor)
        raise
    return descriptor


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
