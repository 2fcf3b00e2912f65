"""Folders of users are walked through, removed and unmounted without trust in their content."""

import os
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from heliostat.untrusted_folders import detach_mount, remove_folder, unmount_below, walk_folders
from support.deep_folders import DEPTH, make_deep_folder


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path / "top"
    folder.mkdir()
    return folder


@pytest.fixture
def mounted(top: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder of the same file system, mounted below the top."""
    precious, point = tmp_path / "precious", top / "a b" / "mounted"
    precious.mkdir()
    (precious / "file").write_text("kept")
    point.mkdir(parents=True)
    done = subprocess.run(["mount", "--bind", precious, point], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    yield point
    subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_walk_reaches_any_depth_with_few_descriptors(top: Path) -> None:
    make_deep_folder(top)
    before, most, depth, files = open_descriptors(), 0, 0, []
    for folder in walk_folders(str(top)):
        depth = max(depth, len(folder.parts))
        if depth % 100 == 0:
            most = max(most, open_descriptors())
        files += [entry.name for entry in folder.files()]
    assert (depth, files) == (DEPTH, ["file"])
    assert most <= before + 2
    assert open_descriptors() == before
    remove_folder(str(top))


def test_a_removal_reaches_any_depth_and_closes_what_it_opens(top: Path) -> None:
    for name in ("one", "two"):
        make_deep_folder(top / name)
    before = open_descriptors()
    remove_folder(str(top))
    assert not top.exists()
    assert open_descriptors() == before
    remove_folder(str(top))


def test_a_walk_visits_every_folder_once_parents_first(top: Path) -> None:
    for path in ("b/y", "a/x/1", "a/x/2", "c"):
        (top / path).mkdir(parents=True)
    (top / "c" / "link").symlink_to(top)
    parts = ["/".join(folder.parts) for folder in walk_folders(str(top))]
    assert parts == ["", "a", "a/x", "a/x/1", "a/x/2", "b", "b/y", "c"]


def test_links_are_removed_and_not_followed(top: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    (top / "folder").symlink_to(precious)
    (top / "file").symlink_to(precious / "file")
    remove_folder(str(top))
    assert not top.exists()
    top.symlink_to(precious)
    remove_folder(str(top))
    assert not top.is_symlink()
    assert (precious / "file").read_text() == "kept"


def test_a_folder_that_is_moved_during_the_walk_ends_it(top: Path, tmp_path: Path) -> None:
    (top / "a" / "b").mkdir(parents=True)
    walk = walk_folders(str(top))
    assert ["/".join(folder.parts) for folder in islice(walk, 3)] == ["", "a", "a/b"]
    (top / "a" / "b").rename(tmp_path / "b")
    with pytest.raises(OSError, match="moved"):
        next(walk)


def test_nothing_is_removed_in_a_mount_and_everything_beside_it_is(top: Path, mounted: Path) -> None:
    (top / "other" / "below").mkdir(parents=True)
    with pytest.raises(OSError, match=r"not empty|busy"):
        remove_folder(str(top))
    assert (mounted / "file").read_text() == "kept"
    assert [path.name for path in top.iterdir()] == ["a b"]


def test_mounts_below_a_folder_are_detached(top: Path, mounted: Path, tmp_path: Path) -> None:
    unmount_below(str(top))
    assert not os.path.ismount(mounted)
    remove_folder(str(top))
    assert (tmp_path / "precious" / "file").read_text() == "kept"


@pytest.mark.usefixtures("mounted")
def test_no_mount_is_detached_through_a_link(top: Path, mounted: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "link").symlink_to(mounted.parent)
    (other / "last").symlink_to(mounted)
    for parts in (["link", "mounted"], ["last"]):
        with pytest.raises(OSError, match=r"directory|argument|levels"):
            detach_mount(str(other), parts)
    assert (mounted / "file").read_text() == "kept"
