import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.client.destination_folder import DestinationFolder
from heliostat.errors import Invalid


def test_files_are_saved_and_replaced_in_new_folders(tmp_path: Path) -> None:
    with DestinationFolder(tmp_path / "lab" / "results-1") as folder:
        for content in (b"old and long", b"new"):
            saved = folder.save(["plots", "loss.txt"], [content[:2], content[2:]])
            assert saved == tmp_path / "lab" / "results-1" / "plots" / "loss.txt"
            assert saved.read_bytes() == content
        assert os.listdir(saved.parent) == ["loss.txt"]
        long_name = "ü" * 127
        assert folder.save([long_name], [b"x"]).read_bytes() == b"x"


def test_no_link_in_the_folder_is_followed(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "key").write_text("secret")
    results = tmp_path / "results-1"
    results.mkdir()
    (results / ".loss.txt.part").symlink_to(private / "key")
    (results / "loss.txt").symlink_to(private / "key")
    (results / "plots").symlink_to(private)
    with DestinationFolder(results) as folder:
        assert not folder.save(["loss.txt"], [b"0.1"]).is_symlink()
        with pytest.raises(Invalid, match="plots"):
            folder.save(["plots", "key"], [b"0.1"])
    assert (private / "key").read_text() == "secret"
    assert sorted(os.listdir(private)) == ["key"]


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of a folder, which needs root")
@pytest.mark.parametrize("foreign", ["results", "results/plots", "link"])
def test_folders_and_links_of_other_users_are_refused(tmp_path: Path, foreign: str) -> None:
    (tmp_path / "results" / "plots").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "results")
    top = "link" if foreign == "link" else "results"
    os.chown(tmp_path / foreign, 65534, 65534, follow_symlinks=False)
    with (
        DestinationFolder(tmp_path / top) as folder,
        pytest.raises(Invalid, match="belongs to another user") as refused,
    ):
        folder.save(["plots", "loss.txt"], [b"0.1"])
    assert "--to" in (refused.value.hint or "")
    assert os.listdir(tmp_path / "results" / "plots") == []


def test_a_link_of_yours_to_a_folder_of_yours_is_used(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "results").symlink_to(tmp_path / "scratch")
    with DestinationFolder(tmp_path / "results") as folder:
        folder.save(["loss.txt"], [b"0.1"])
    assert (tmp_path / "scratch" / "loss.txt").read_bytes() == b"0.1"


def test_a_broken_download_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionError

    with DestinationFolder(tmp_path / "results") as folder:
        folder.save(["loss.txt"], [b"whole"])
        with pytest.raises((Invalid, ConnectionError)):
            folder.save(["loss.txt"], broken())
    assert (tmp_path / "results" / "loss.txt").read_bytes() == b"whole"
    assert os.listdir(tmp_path / "results") == ["loss.txt"]


def replace_before_open(monkeypatch: pytest.MonkeyPatch, path: Path, target: Path) -> None:
    """With a link, when the program has checked it."""

    def replace_and_open(name: str, flags: int, *, dir_fd: int | None = None) -> int:
        monkeypatch.undo()
        path.rename(path.with_name("moved"))
        path.symlink_to(target)
        return os.open(name, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", replace_and_open)


def test_a_link_put_in_place_of_the_folder_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before it is opened, and between two files."""
    (private := tmp_path / "private").mkdir()
    (results := tmp_path / "results").mkdir()

    with DestinationFolder(results) as folder:
        replace_before_open(monkeypatch, results, private)
        with pytest.raises(Invalid, match="cannot be written"):
            folder.save(["loss.txt"], [b"0.1"])
    results.unlink()
    (tmp_path / "moved").rename(results)
    with DestinationFolder(results) as folder:
        folder.save(["loss.txt"], [b"0.1"])
        results.rename(tmp_path / "moved")
        results.symlink_to(private)
        folder.save(["accuracy.txt"], [b"0.9"])
    assert os.listdir(private) == []
    assert sorted(os.listdir(tmp_path / "moved")) == ["accuracy.txt", "loss.txt"]


def test_a_link_that_is_replaced_while_it_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (private := tmp_path / "private").mkdir()
    (tmp_path / "scratch").mkdir()
    (results := tmp_path / "results").symlink_to(tmp_path / "scratch")

    with DestinationFolder(results) as folder:
        replace_before_open(monkeypatch, results, private)
        with pytest.raises(Invalid, match="was replaced"):
            folder.save(["loss.txt"], [b"0.1"])
    assert os.listdir(private) == []
