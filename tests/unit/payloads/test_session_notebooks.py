"""What is found and read in the working folder of a session."""

import os
from pathlib import Path

from heliostat.models.notebooks import MAX_NOTEBOOK_BYTES
from heliostat.payloads import session_notebooks


def test_it_reads_as_much_as_the_server_takes() -> None:
    assert session_notebooks.MAX_BYTES == MAX_NOTEBOOK_BYTES


def test_notebooks_are_looked_for_below_the_folder_only_and_not_in_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.ipynb", "a/c.ipynb", ".git/d.ipynb", "a/.ipynb_checkpoints/e.ipynb", "a/f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "round").symlink_to(tmp_path)
    assert session_notebooks.list_notebooks(str(tmp_path)) == ["b.ipynb", "a/c.ipynb"]


def test_only_a_plain_file_below_the_folder_is_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside.ipynb").write_text("outside")
    (root / "in.ipynb").write_text("inside")
    (root / "good.ipynb").symlink_to("in.ipynb")
    (root / "bad.ipynb").symlink_to("../outside.ipynb")
    (root / "up").symlink_to("..")
    os.mkfifo(root / "pipe.ipynb")
    assert session_notebooks.read_notebook(str(root), "good.ipynb") == b"inside"
    wrong = (
        "bad.ipynb",
        "../outside.ipynb",
        "up/outside.ipynb",
        str(tmp_path / "outside.ipynb"),
        "pipe.ipynb",
        ".",
    )
    assert [session_notebooks.read_notebook(str(root), path) for path in wrong] == [None] * len(wrong)
