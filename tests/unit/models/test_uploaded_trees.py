"""What a folder that was uploaded may look like."""

import pytest

from heliostat.models.uploads import (
    TreeFile,
    TreeLink,
    is_link_outside,
    make_tree,
    text_to_tree,
    tree_to_text,
    user_upload_folder,
)

A, B = "a" * 64, "b" * 64


def test_the_same_files_are_the_same_tree_in_any_order() -> None:
    one = make_tree([TreeFile("a", A, 1), TreeFile("b", B, 2)])
    other = make_tree([TreeFile("b", B, 2), TreeFile("a", A, 1)])
    assert one == other
    assert one.id == other.id


@pytest.mark.parametrize(
    "file",
    [TreeFile("a", B, 1), TreeFile("a", A, 2), TreeFile("a", A, 1, is_executable=True), TreeFile("b", A, 1)],
)
def test_any_difference_makes_another_tree(file: TreeFile) -> None:
    assert make_tree([file]).id != make_tree([TreeFile("a", A, 1)]).id


def test_a_tree_is_read_back_as_it_was_written() -> None:
    tree = make_tree([TreeFile("src/ä b.py", A, 1, is_executable=True)], [TreeLink("l", "src")])
    assert text_to_tree(tree_to_text(tree)) == tree


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "..", "a/../b", "a//b", "a/", "./a", "a\0b", "x" * 256, "a/" * 70]
)
def test_a_path_that_is_not_below_the_folder_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"path|name"):
        make_tree([TreeFile(path, A, 1)])


def test_a_file_cannot_lie_below_a_file_or_a_link() -> None:
    with pytest.raises(ValueError, match="file and a folder"):
        make_tree([TreeFile("a", A, 1), TreeFile("a/b/c", B, 1)])
    with pytest.raises(ValueError, match="file and a folder"):
        make_tree([TreeFile("l/passwd", A, 1)], [TreeLink("l", "sub")])


def test_nothing_may_be_there_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        make_tree([TreeFile("a", A, 1)], [TreeLink("a", "b")])


def test_one_content_has_one_size() -> None:
    with pytest.raises(ValueError, match="a different size"):
        make_tree([TreeFile("a", A, 1), TreeFile("b", A, 2)])


@pytest.mark.parametrize(
    ("path", "target"), [("l", "/etc"), ("l", ".."), ("a/l", "../.."), ("a/l", "../b/../../x"), ("l", "")]
)
def test_a_link_that_leaves_the_folder_is_refused(path: str, target: str) -> None:
    assert is_link_outside(path, target)
    with pytest.raises(ValueError, match="points outside of the folder"):
        make_tree([], [TreeLink(path, target)])


@pytest.mark.parametrize(("path", "target"), [("l", "a"), ("a/l", "../b"), ("a/l", "."), ("a/b/l", "../../c/d")])
def test_a_link_within_the_folder_is_kept(path: str, target: str) -> None:
    assert not is_link_outside(path, target)


def test_a_name_of_a_person_cannot_lead_out_of_the_folder_of_uploads() -> None:
    assert user_upload_folder("/u", "..") == "/u/%2E%2E"
    assert user_upload_folder("/u", "a/../b") == "/u/a%2F%2E%2E%2Fb"


def test_the_contents_of_a_tree_are_found_once_for_all_questions() -> None:
    tree = make_tree([TreeFile("a", A, 1), TreeFile("b", A, 1), TreeFile("c", B, 2)])
    assert tree.blobs == {A: 1, B: 2}
    assert tree.blobs is tree.blobs
