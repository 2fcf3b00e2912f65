"""Terminal output as safe page text: ANSI colours become CSS classes, and of a line that is redrawn with carriage
returns (progress bars) only the last state remains. Pure functions."""

import re
from collections.abc import Iterator

StyledSpan = tuple[str, str]
"""CSS classes (`""`, `a1`, `a4 bold`) and text."""

MAX_LINE_CHARACTERS = 4000
_ESCAPE = re.compile(
    r"\x1b\[(?P<codes>[0-9;:?]{0,64})[ -/]{0,4}(?P<end>[@-~])"  # CSI: colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC and similar: titles, links
    r"|\x1b[ -/]*[0-~]?"
)
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_PALETTE = 16


def parse_ansi_line(data: bytes) -> tuple[StyledSpan, ...]:
    """One line; long lines are truncated with a note."""
    text = _newest(data.decode("utf-8", "replace"))
    spans = list(_coloured(text[: MAX_LINE_CHARACTERS * 2]))
    shown, remaining = [], MAX_LINE_CHARACTERS
    for classes, piece in spans:
        if remaining <= 0:
            break
        shown.append((classes, piece[:remaining]))
        remaining -= len(piece)
    if remaining < 0 or len(text) > MAX_LINE_CHARACTERS * 2:
        shown.append(("cut", f" … {len(text):,} characters in total; download the log to see them"))
    return tuple(shown)


def strip_ansi(data: bytes) -> str:
    return "".join(text for _, text in parse_ansi_line(data))


def _newest(text: str) -> str:
    """The text after the last carriage return that is not empty."""
    if "\r" not in text:
        return text
    return next((part for part in reversed(text.split("\r")) if _ESCAPE.sub("", part).strip()), "")


def _coloured(text: str) -> Iterator[StyledSpan]:
    style, at = _Style(), 0
    for escape in _ESCAPE.finditer(text):
        if piece := _INVISIBLE.sub("", text[at : escape.start()]):
            yield style.classes, piece
        at = escape.end()
        if escape["end"] == "m" and "?" not in escape["codes"]:
            style.apply_codes(escape["codes"])
    if piece := _INVISIBLE.sub("", text[at:]):
        yield style.classes, piece


class _Style:
    """Current colour and weight."""

    def __init__(self) -> None:
        self._colour: int | None = None
        self._bold = False

    @property
    def classes(self) -> str:
        colour = [] if self._colour is None else [f"a{self._colour % 8}"]
        return " ".join([*colour, *(["bold"] if self._bold else [])])

    def apply_codes(self, text: str) -> None:
        codes = iter([int(code[:4] or 0) for code in re.split("[;:]", text)])
        for code in codes:
            if code == 0:
                self._colour, self._bold = None, False
            elif code in (1, 22):
                self._bold = code == 1
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self._colour = code % 10
            elif code in (38, 48):
                self._apply_palette(codes, code == 38)
            elif code == 39:
                self._colour = None

    def _apply_palette(self, codes: Iterator[int], is_front: bool) -> None:
        """`38;5;n` is one of 256 colours, `38;2;r;g;b` an RGB colour; only the first 16 have a class."""
        if next(codes, 0) == 5:
            number = next(codes, _PALETTE)
            if is_front:
                self._colour = number if number < _PALETTE else None
            return
        for _ in range(3):
            next(codes, 0)
