"""What people have uploaded, on disk."""

import hashlib
import os
from pathlib import Path

import pytest

from heliostat.errors import BadRequest
from heliostat.models.uploads import Tree, TreeFile, make_tree
from heliostat.store.uploads import Uploads

HELLO = b"hello"
DIGEST = hashlib.sha256(HELLO).hexdigest()
OLD = 1_000_000_000.0


def _tree(*contents: bytes) -> Tree:
    return make_tree(
        TreeFile(f"{number}", hashlib.sha256(content).hexdigest(), len(content))
        for number, content in enumerate(contents)
    )


def _put(uploads: Uploads, user: str, content: bytes) -> None:
    draft = uploads.draft(user, hashlib.sha256(content).hexdigest(), len(content))
    draft.write(content)
    draft.finish()


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _age(folder: Path) -> None:
    for path in _files(folder):
        os.utime(path, (OLD, OLD))


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    return Uploads(tmp_path)


def test_only_what_was_not_sent_is_missing(uploads: Uploads) -> None:
    tree = _tree(HELLO, b"other")
    _put(uploads, "anna", HELLO)
    assert uploads.missing("anna", tree) == [hashlib.sha256(b"other").hexdigest()]


def test_what_one_person_has_sent_says_nothing_to_another(uploads: Uploads) -> None:
    _put(uploads, "anna", HELLO)
    assert uploads.missing("bob", _tree(HELLO)) == [DIGEST]


@pytest.mark.parametrize("sent", [b"hellO", b"hell", b""])
def test_what_is_not_what_it_was_said_to_be_is_not_kept(uploads: Uploads, tmp_path: Path, sent: bytes) -> None:
    draft = uploads.draft("anna", DIGEST, len(HELLO))
    draft.write(sent)
    with pytest.raises(BadRequest):
        draft.finish()
    assert uploads.missing("anna", _tree(HELLO)) == [DIGEST]
    assert _files(tmp_path) == []


def test_a_content_that_lost_bytes_on_disk_is_missing_again(uploads: Uploads, tmp_path: Path) -> None:
    _put(uploads, "anna", HELLO)
    _files(tmp_path)[0].write_bytes(b"")
    assert uploads.missing("anna", _tree(HELLO)) == [DIGEST]


def test_a_tree_can_be_handed_on_to_somebody_else(uploads: Uploads) -> None:
    tree = _tree(HELLO, b"other")
    _put(uploads, "anna", HELLO)
    _put(uploads, "anna", b"other")
    uploads.add_tree("anna", tree)
    uploads.hand_on("anna", "bob", tree)
    assert uploads.tree("bob", tree.id) == tree
    assert uploads.missing("bob", tree) == []


def test_what_was_not_of_use_for_long_is_swept(uploads: Uploads, tmp_path: Path) -> None:
    tree = _tree(HELLO)
    _put(uploads, "anna", HELLO)
    uploads.add_tree("anna", tree)
    _age(tmp_path)
    assert uploads.sweep(OLD + 1, needed=()) == 1
    assert uploads.tree("anna", tree.id) is None
    assert _files(tmp_path) == []


def test_what_an_unfinished_job_needs_is_kept(uploads: Uploads, tmp_path: Path) -> None:
    tree = _tree(HELLO)
    _put(uploads, "anna", HELLO)
    uploads.add_tree("anna", tree)
    _age(tmp_path)
    assert uploads.sweep(OLD + 1, needed={tree.id}) == 0
    assert uploads.missing("anna", tree) == []


def test_a_content_of_two_trees_stays_while_one_of_them_does(uploads: Uploads, tmp_path: Path) -> None:
    old, new = _tree(HELLO, b"other"), _tree(HELLO)
    for content in (HELLO, b"other"):
        _put(uploads, "anna", content)
    uploads.add_tree("anna", old)
    _age(tmp_path)
    uploads.add_tree("anna", new)
    assert uploads.sweep(OLD + 1, needed=()) == 1
    assert uploads.missing("anna", new) == []


def test_drafts_of_a_server_that_died_are_swept_a_day_later(uploads: Uploads, tmp_path: Path) -> None:
    draft = uploads.draft("anna", DIGEST, 5)
    draft.write(b"hel")
    _age(tmp_path)
    assert uploads.sweep(OLD, needed=()) == 1
    assert _files(tmp_path) == []
    draft.drop()


def test_to_ask_what_is_missing_keeps_what_is_there(uploads: Uploads, tmp_path: Path) -> None:
    _put(uploads, "anna", HELLO)
    _age(tmp_path)
    uploads.missing("anna", _tree(HELLO))
    assert uploads.sweep(OLD + 1, needed=()) == 0
