"""What people have uploaded, on disk."""

import hashlib
import os
from pathlib import Path

import pytest

from heliostat.errors import BadRequest
from heliostat.models.uploads import FileTree, TreeFile, make_tree
from heliostat.store.uploads import UploadStore

HELLO = b"hello"
DIGEST = hashlib.sha256(HELLO).hexdigest()
OLD = 1_000_000_000.0


def _tree(*contents: bytes) -> FileTree:
    return make_tree(
        TreeFile(f"{number}", hashlib.sha256(content).hexdigest(), len(content))
        for number, content in enumerate(contents)
    )


def _put(uploads: UploadStore, user: str, content: bytes) -> None:
    draft = uploads.create_blob_writer(user, hashlib.sha256(content).hexdigest(), len(content))
    draft.write(content)
    draft.finish()


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _age(folder: Path) -> None:
    for path in _files(folder):
        os.utime(path, (OLD, OLD))


@pytest.fixture
def uploads(tmp_path: Path) -> UploadStore:
    return UploadStore(tmp_path)


def test_only_what_was_not_sent_is_missing(uploads: UploadStore) -> None:
    tree = _tree(HELLO, b"other")
    _put(uploads, "anna", HELLO)
    assert uploads.list_missing_blobs("anna", tree) == [hashlib.sha256(b"other").hexdigest()]


def test_what_one_person_has_sent_says_nothing_to_another(uploads: UploadStore) -> None:
    _put(uploads, "anna", HELLO)
    assert uploads.list_missing_blobs("bob", _tree(HELLO)) == [DIGEST]


@pytest.mark.parametrize("sent", [b"hellO", b"hell", b""])
def test_what_is_not_what_it_was_said_to_be_is_not_kept(uploads: UploadStore, tmp_path: Path, sent: bytes) -> None:
    draft = uploads.create_blob_writer("anna", DIGEST, len(HELLO))
    draft.write(sent)
    with pytest.raises(BadRequest):
        draft.finish()
    assert uploads.list_missing_blobs("anna", _tree(HELLO)) == [DIGEST]
    assert _files(tmp_path) == []


def test_a_content_that_lost_bytes_on_disk_is_missing_again(uploads: UploadStore, tmp_path: Path) -> None:
    _put(uploads, "anna", HELLO)
    _files(tmp_path)[0].write_bytes(b"")
    assert uploads.list_missing_blobs("anna", _tree(HELLO)) == [DIGEST]


def test_a_tree_can_be_handed_on_to_somebody_else(uploads: UploadStore) -> None:
    tree = _tree(HELLO, b"other")
    _put(uploads, "anna", HELLO)
    _put(uploads, "anna", b"other")
    uploads.add_tree("anna", tree)
    uploads.copy_tree_to_user("anna", "bob", tree)
    assert uploads.find_tree("bob", tree.id) == tree
    assert uploads.list_missing_blobs("bob", tree) == []


def test_what_was_not_of_use_for_long_is_swept(uploads: UploadStore, tmp_path: Path) -> None:
    tree = _tree(HELLO)
    _put(uploads, "anna", HELLO)
    uploads.add_tree("anna", tree)
    _age(tmp_path)
    assert uploads.remove_unused(OLD + 1, needed=()) == 1
    assert uploads.find_tree("anna", tree.id) is None
    assert _files(tmp_path) == []


def test_what_an_unfinished_job_needs_is_kept(uploads: UploadStore, tmp_path: Path) -> None:
    tree = _tree(HELLO)
    _put(uploads, "anna", HELLO)
    uploads.add_tree("anna", tree)
    _age(tmp_path)
    assert uploads.remove_unused(OLD + 1, needed={tree.id}) == 0
    assert uploads.list_missing_blobs("anna", tree) == []


def test_a_content_of_two_trees_stays_while_one_of_them_does(uploads: UploadStore, tmp_path: Path) -> None:
    old, new = _tree(HELLO, b"other"), _tree(HELLO)
    for content in (HELLO, b"other"):
        _put(uploads, "anna", content)
    uploads.add_tree("anna", old)
    _age(tmp_path)
    uploads.add_tree("anna", new)
    assert uploads.remove_unused(OLD + 1, needed=()) == 1
    assert uploads.list_missing_blobs("anna", new) == []


def test_drafts_of_a_server_that_died_are_swept_a_day_later(uploads: UploadStore, tmp_path: Path) -> None:
    draft = uploads.create_blob_writer("anna", DIGEST, 5)
    draft.write(b"hel")
    _age(tmp_path)
    assert uploads.remove_unused(OLD, needed=()) == 1
    assert _files(tmp_path) == []
    draft.discard()


def test_to_ask_what_is_missing_keeps_what_is_there(uploads: UploadStore, tmp_path: Path) -> None:
    _put(uploads, "anna", HELLO)
    _age(tmp_path)
    uploads.list_missing_blobs("anna", _tree(HELLO))
    assert uploads.remove_unused(OLD + 1, needed=()) == 0
