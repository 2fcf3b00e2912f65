"""What of a folder is uploaded."""

import os
from pathlib import Path

import pytest

from heliostat.client.uploads import read_file_chunks, scan_folder
from heliostat.errors import Invalid


def _make(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _paths(folder: Path) -> list[str]:
    return [file.path for file in scan_folder(folder).tree.files]


def test_all_files_are_taken_with_their_modes(tmp_path: Path) -> None:
    _make(tmp_path, train_dot_py="x", src__model_dot_py="y")
    (tmp_path / "run").write_text("#!/bin/sh")
    (tmp_path / "run").chmod(0o755)
    files = scan_folder(tmp_path).tree.files
    assert [(file.path, file.size_bytes, file.is_executable) for file in files] == [
        ("run", 9, True),
        ("src/model.py", 1, False),
        ("train.py", 1, False),
    ]


def test_what_is_ignored_by_git_or_by_us_is_left_out(tmp_path: Path) -> None:
    _make(tmp_path, a_dot_py="", a_dot_log="", data__x_dot_bin="", out__y="")
    (tmp_path / ".gitignore").write_text("*.log\n/data/\n")
    (tmp_path / ".heliostatignore").write_text("out\n")
    assert _paths(tmp_path) == [".gitignore", ".heliostatignore", "a.py"]


def test_our_own_file_has_the_last_word(tmp_path: Path) -> None:
    _make(tmp_path, config_dot_json="")
    (tmp_path / ".gitignore").write_text("*.json\n")
    (tmp_path / ".heliostatignore").write_text("!config.json\n.*ignore\n")
    assert _paths(tmp_path) == ["config.json"]


def test_a_file_deeper_down_speaks_for_its_own_folder(tmp_path: Path) -> None:
    _make(tmp_path, sub__a_dot_txt="", sub__b_dot_txt="", a_dot_txt="")
    (tmp_path / ".gitignore").write_text("*.txt\n")
    (tmp_path / "sub" / ".gitignore").write_text("!a.txt\n/.gitignore\n")
    assert _paths(tmp_path) == [".gitignore", "sub/a.txt"]


def test_the_history_and_what_can_be_made_again_are_left_out(tmp_path: Path) -> None:
    for name in (".git/config", "__pycache__/a.pyc", ".venv/bin/python", "a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert _paths(tmp_path) == ["a.py"]


def test_links_within_the_folder_are_kept_as_links(tmp_path: Path) -> None:
    _make(tmp_path, sub__a="x")
    (tmp_path / "link").symlink_to("sub/a")
    (tmp_path / "sub" / "up").symlink_to("../sub")
    links = scan_folder(tmp_path).tree.links
    assert [(link.path, link.target) for link in links] == [("link", "sub/a"), ("sub/up", "../sub")]


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "sub/../../secret"])
def test_a_link_that_leaves_the_folder_is_refused_by_its_name(tmp_path: Path, target: str) -> None:
    (tmp_path / "code" / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (tmp_path / "code" / "link").symlink_to(target)
    with pytest.raises(Invalid, match=r"link -> .* points outside the folder"):
        scan_folder(tmp_path / "code")


def test_a_link_that_leaves_the_folder_through_another_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "code" / "a" / "b").mkdir(parents=True)
    (tmp_path / "code" / "a" / "b" / "top").symlink_to("../..")
    (tmp_path / "code" / "out").symlink_to("a/b/top/..")
    with pytest.raises(Invalid, match=r"out -> .* points outside the folder"):
        scan_folder(tmp_path / "code")


def test_a_pipe_is_refused_and_can_be_ignored(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Invalid, match="pipe is not a file"):
        scan_folder(tmp_path)
    (tmp_path / ".heliostatignore").write_text("pipe\n")
    assert _paths(tmp_path) == [".heliostatignore"]


def test_a_name_that_is_not_text_is_refused(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_text("")
    with pytest.raises(Invalid, match="not UTF-8"):
        scan_folder(tmp_path)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="not a folder"):
        scan_folder(tmp_path / "nothing")


def test_a_file_that_shrinks_while_it_is_sent_is_noticed(tmp_path: Path) -> None:
    _make(tmp_path, a="hello")
    scanned = scan_folder(tmp_path)
    (tmp_path / "a").write_text("")
    with pytest.raises(Invalid, match="changed during the upload"):
        list(read_file_chunks(scanned.path, scanned.tree.files[0]))
