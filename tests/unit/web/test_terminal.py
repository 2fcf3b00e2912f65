import pytest

from heliostat.web.job_page.ansi_text import MAX_LINE_CHARACTERS, parse_ansi_line, strip_ansi


def test_plain_text_stays_as_it_is() -> None:
    assert parse_ansi_line("größer\tthan 5 µm".encode()) == (("", "größer\tthan 5 µm"),)
    assert parse_ansi_line(b"") == ()


def test_colours_become_classes() -> None:
    assert parse_ansi_line(b"\x1b[1;31merror\x1b[0m: \x1b[92mfine\x1b[39m.") == (
        ("a1 bold", "error"),
        ("", ": "),
        ("a2", "fine"),
        ("", "."),
    )


def test_colours_without_a_name_leave_the_text_alone() -> None:
    assert strip_ansi(b"\x1b[38;2;1;2;3mdeep\x1b[48;5;200m sea\x1b[38;5;9m red") == "deep sea red"
    assert parse_ansi_line(b"\x1b[38;5;9mred")[0] == ("a1", "red")


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
    assert strip_ansi(hostile) == "shown"


def test_of_a_bar_only_the_newest_is_shown() -> None:
    assert strip_ansi(b"\r 10%|#\r 20%|##\r 30%|###") == " 30%|###"
    assert strip_ansi(b" 99%\r100%\r") == "100%"
    assert strip_ansi(b"line\r") == "line"
    assert strip_ansi(b"\r\x1b[K\r") == ""


def test_very_long_lines_are_cut_and_say_so() -> None:
    shown = parse_ansi_line(b"x" * 1_000_000)
    assert sum(len(text) for _, text in shown) < MAX_LINE_CHARACTERS + 100
    assert shown[-1][0] == "cut"
    assert "1,000,000 characters" in shown[-1][1]


def test_what_is_no_text_is_shown_as_well_as_possible() -> None:
    assert strip_ansi(b"a\xffb") == "a\N{REPLACEMENT CHARACTER}b"
