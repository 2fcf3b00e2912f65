import os

import pytest

from unit.client.stand_in_server import answer

NAME = "a\x1b[2Jb.txt"
FILES = {"items": [{"name": NAME, "kind": "file", "size_bytes": 3, "changed_at": "2026-01-02T03:04:05Z"}]}


def test_names_of_results_cannot_change_the_terminal(helio, serve, tmp_path):
    serve(answer(FILES, Connection="close"), answer(b"0.1"))
    ran = helio("results", "7", "--to", str(tmp_path / "got"))
    assert ran.code == 0
    assert ran.out == f"{tmp_path}/got/a\N{REPLACEMENT CHARACTER}[2Jb.txt\n"
    assert (tmp_path / "got" / NAME).read_bytes() == b"0.1"


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of a folder, which needs root")
def test_a_folder_of_another_user_is_refused(helio, serve, tmp_path):
    os.mkdir(tmp_path / "got")
    os.chown(tmp_path / "got", 65534, 65534)
    serve(answer(FILES, Connection="close"), answer(b"0.1"))
    ran = helio("results", "7", "--to", str(tmp_path / "got"))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"helio: The folder {tmp_path}/got belongs to another user.\n"
        "hint: Name a new folder, or one of yours: --to.\n"
    )


def test_an_error_cannot_change_the_terminal(helio, serve, tmp_path):
    (tmp_path / "got" / NAME).mkdir(parents=True)
    serve(answer(FILES, Connection="close"), answer(b"0.1"))
    ran = helio("results", "7", "--to", str(tmp_path / "got"))
    assert ran.code == 2
    assert "cannot be written" in ran.err
    assert "\x1b" not in ran.err
