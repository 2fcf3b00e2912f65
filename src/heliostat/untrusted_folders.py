"""Folders that users can write to: walk through them, remove them, unmount what is mounted below them.

Their content is not trusted. It may be nested to any depth, contain links and mounts, and change at any time.
Every folder is opened from the descriptor of its parent without following links; nothing is removed in a mount.
At most two descriptors are open at a time: the way back is `..`, which must be the folder that was left.
"""

import contextlib
import ctypes
import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MNT_DETACH, _UMOUNT_NOFOLLOW = 0x2, 0x8
_ESCAPED_BYTE = re.compile(rb"\\([0-7]{3})")  # in /proc/self/mounts: blank, tab, newline, backslash


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """Valid until the next folder is asked for."""

    descriptor: int
    parts: Sequence[str]  # its path below the top

    def files(self) -> Iterator["os.DirEntry[str]"]:
        """All entries except folders."""
        with os.scandir(self.descriptor) as entries:
            yield from (entry for entry in entries if not entry.is_dir(follow_symlinks=False))


def walk_folders(top: str, *, enter_mounts: bool = False) -> Iterator[OpenFolder]:
    """The folder and all below it, parents first, sorted by name. Folders that cannot be opened are left out.
    Raises OSError if `top` cannot be opened, or if a folder is moved meanwhile."""
    with contextlib.closing(_Position(top, enter_mounts)) as position:
        while True:
            yield OpenFolder(position.descriptor, position.parts)
            position.list_subfolders()
            while not position.enter_next():
                if not position.parts:
                    return
                position.leave()


def remove_folder(top: str) -> None:
    """Remove the folder with everything below it, or the file or link of this name. Success if it does not exist.
    Raises OSError if something cannot be removed, after everything else is."""
    try:
        position = _Position(top)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(top)
        return
    errors: list[OSError] = []
    with contextlib.closing(position):
        _remove_files(position, errors)
        while True:
            if position.enter_next():
                _remove_files(position, errors)
            elif position.parts:
                name = position.leave()
                with _recorded(errors):
                    os.rmdir(name, dir_fd=position.descriptor)
            else:
                break
    if errors:
        raise errors[0]
    os.rmdir(top)


def unmount_below(top: str) -> None:
    """Detach every mount below the folder. Raises OSError if one is left."""
    for point in _mounts_below(top):
        with contextlib.suppress(OSError):  # it was below another one
            detach_mount(top, os.path.relpath(point, top).split("/"))
    if left := _mounts_below(top):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), left[0])


def open_folder(top: str, parts: Sequence[str]) -> int:
    """The descriptor of a folder below `top`. No link is followed. Raises OSError."""
    descriptor = os.open(top, _FOLDER_FLAGS)
    for name in parts:
        parent = descriptor
        try:
            descriptor = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
        finally:
            os.close(parent)
    return descriptor


class _Position:
    """An open folder below `top`. For each of its parents it knows the identity and the subfolders to visit."""

    def __init__(self, top: str, enters_mounts: bool = False) -> None:
        self.descriptor = os.open(top, _FOLDER_FLAGS)
        self.parts: list[str] = []
        self._mount = None if enters_mounts else _mount_id(self.descriptor)
        self._parents: list[tuple[int, int]] = []
        self._unvisited: list[list[str]] = [[]]

    def list_subfolders(self) -> None:
        """Find the subfolders that `enter_next` enters."""
        with os.scandir(self.descriptor) as entries:
            self._unvisited[-1] = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        self._unvisited[-1].sort(reverse=True)

    def enter_next(self) -> bool:
        """Enter the next subfolder. False: there is none."""
        while self._unvisited[-1]:
            name = self._unvisited[-1].pop()
            with contextlib.suppress(OSError):
                below = os.open(name, _FOLDER_FLAGS, dir_fd=self.descriptor)
                if self._mount is None or _mount_id(below) == self._mount:
                    self._parents.append(_identity(self.descriptor))
                    self._unvisited.append([])
                    self.parts.append(name)
                    self._move_to(below)
                    return True
                os.close(below)
        return False

    def leave(self) -> str:
        """Return to the parent; the name of the folder that was left. Raises OSError if that was moved."""
        above = os.open("..", _FOLDER_FLAGS, dir_fd=self.descriptor)
        self._move_to(above)
        if _identity(above) != self._parents.pop():
            raise OSError(errno.ESTALE, "the folder was moved", self.parts[-1])
        self._unvisited.pop()
        return self.parts.pop()

    def close(self) -> None:
        os.close(self.descriptor)

    def _move_to(self, descriptor: int) -> None:
        os.close(self.descriptor)
        self.descriptor = descriptor


def _remove_files(position: _Position, errors: list[OSError]) -> None:
    if os.geteuid() == 0:  # otherwise its user could create files as fast as they are removed
        with contextlib.suppress(OSError):
            os.fchown(position.descriptor, 0, 0)
            os.fchmod(position.descriptor, 0o700)
    with _recorded(errors):
        position.list_subfolders()
        for entry in OpenFolder(position.descriptor, position.parts).files():
            with _recorded(errors):
                os.unlink(entry.name, dir_fd=position.descriptor)


@contextlib.contextmanager
def _recorded(errors: list[OSError]) -> Iterator[None]:
    """Records the first error only: a folder can have millions of files."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        errors[:] = errors or [error]


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _mount_id(descriptor: int) -> str:
    """Differs from that of the parent where something is mounted, even a folder of the same file system."""
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as lines:
        return next(line for line in lines if line.startswith("mnt_id:"))


def _mounts_below(folder: str) -> list[str]:
    """The outermost first."""
    lines = Path("/proc/self/mounts").read_bytes().splitlines()
    points = (_ESCAPED_BYTE.sub(lambda found: bytes([int(found[1], 8)]), line.split(b" ")[1]) for line in lines)
    return sorted(point for point in map(os.fsdecode, points) if point.startswith(f"{folder}/"))


def detach_mount(top: str, parts: Sequence[str]) -> None:
    """Through the descriptor of the parent: no part of the path can be replaced by a link."""
    parent = open_folder(top, parts[:-1])
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        path = os.fsencode(f"/proc/self/fd/{parent}/{parts[-1]}")
        if libc.umount2(path, _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), parts[-1])
    finally:
        os.close(parent)
