import pytest

from heliostat.web.job.terminal import LONGEST, plain, runs


def test_plain_text_stays_as_it_is() -> None:
    assert runs("größer\tthan 5 µm".encode()) == (("", "größer\tthan 5 µm"),)
    assert runs(b"") == ()


def test_colours_become_classes() -> None:
    assert runs(b"\x1b[1;31merror\x1b[0m: \x1b[92mfine\x1b[39m.") == (
        ("a1 bold", "error"),
        ("", ": "),
        ("a2", "fine"),
        ("", "."),
    )


def test_colours_without_a_name_leave_the_text_alone() -> None:
    assert plain(b"\x1b[38;2;1;2;3mdeep\x1b[48;5;200m sea\x1b[38;5;9m red") == "deep sea red"
    assert runs(b"\x1b[38;5;9mred")[0] == ("a1", "red")


@pytest.mark.parametrize(
    "hostile",
    [
        b"\x1b]0;title\x07shown",
        b"\x1b]8;;http://evil.example\x1b\\shown",
        b"\x1b[2J\x1b[Hshown",
        b"\x1b[?25lshown",
        b"\x1b(Bshown",
        b"\x00sho\x08wn\x7f",
        "\u202eshown\u2066".encode(),
        b"shown\x1b",
        b"\x1b[" + b"9" * 60 + b"mshown",
    ],
)
def test_what_would_move_a_cursor_or_hide_text_is_taken_out(hostile: bytes) -> None:
    assert plain(hostile) == "shown"


def test_of_a_bar_only_the_newest_is_shown() -> None:
    assert plain(b"\r 10%|#\r 20%|##\r 30%|###") == " 30%|###"
    assert plain(b" 99%\r100%\r") == "100%"
    assert plain(b"line\r") == "line"
    assert plain(b"\r\x1b[K\r") == ""


def test_very_long_lines_are_cut_and_say_so() -> None:
    shown = runs(b"x" * 1_000_000)
    assert sum(len(text) for _, text in shown) < LONGEST + 100
    assert shown[-1][0] == "cut"
    assert "1,000,000 letters" in shown[-1][1]


def test_what_is_no_text_is_shown_as_well_as_possible() -> None:
    assert plain(b"a\xffb") == "a\N{REPLACEMENT CHARACTER}b"
