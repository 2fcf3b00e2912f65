"""What was meant for a terminal, as text that is safe on a page: colours as classes, bars that were drawn over and
over only as they were last. Pure."""

import re
from collections.abc import Iterator

StyledSpan = tuple[str, str]
"""The classes of a piece of text (`""`, `a1`, `a4 bold`), and the text."""

MAX_LINE_CHARACTERS = 4000
_ESCAPE = re.compile(
    r"\x1b\[(?P<codes>[0-9;:?]{0,64})[ -/]{0,4}(?P<end>[@-~])"  # CSI: colours, moves of the cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC and its like: titles, links
    r"|\x1b[ -/]*[0-~]?"
)
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_PALETTE = 16


def parse_ansi_line(data: bytes) -> tuple[StyledSpan, ...]:
    """One line. What is too long is cut, and says so."""
    text = _newest(data.decode("utf-8", "replace"))
    found = list(_coloured(text[: MAX_LINE_CHARACTERS * 2]))
    shown, room = [], MAX_LINE_CHARACTERS
    for classes, piece in found:
        if room <= 0:
            break
        shown.append((classes, piece[:room]))
        room -= len(piece)
    if room < 0 or len(text) > MAX_LINE_CHARACTERS * 2:
        shown.append(("cut", f" … {len(text):,} letters in all; the rest is in the file"))
    return tuple(shown)


def strip_ansi(data: bytes) -> str:
    return "".join(text for _, text in parse_ansi_line(data))


def _newest(text: str) -> str:
    """What a terminal would show last of a line that returns to its begin."""
    if "\r" not in text:
        return text
    return next((part for part in reversed(text.split("\r")) if _ESCAPE.sub("", part).strip()), "")


def _coloured(text: str) -> Iterator[StyledSpan]:
    style, at = _Style(), 0
    for escape in _ESCAPE.finditer(text):
        if piece := _UNSEEN.sub("", text[at : escape.start()]):
            yield style.classes, piece
        at = escape.end()
        if escape["end"] == "m" and "?" not in escape["codes"]:
            style.take(escape["codes"])
    if piece := _UNSEEN.sub("", text[at:]):
        yield style.classes, piece


class _Style:
    """The colours and weight that hold now."""

    def __init__(self) -> None:
        self._colour: int | None = None
        self._bold = False

    @property
    def classes(self) -> str:
        colour = [] if self._colour is None else [f"a{self._colour % 8}"]
        return " ".join([*colour, *(["bold"] if self._bold else [])])

    def take(self, text: str) -> None:
        codes = iter([int(code[:4] or 0) for code in re.split("[;:]", text)])
        for code in codes:
            if code == 0:
                self._colour, self._bold = None, False
            elif code in (1, 22):
                self._bold = code == 1
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self._colour = code % 10
            elif code in (38, 48):
                self._take_palette(codes, code == 38)
            elif code == 39:
                self._colour = None

    def _take_palette(self, codes: Iterator[int], is_front: bool) -> None:
        """`38;5;n` is one of 256 colours, `38;2;r;g;b` any: those without a name of ours are left as they are."""
        if next(codes, 0) == 5:
            number = next(codes, _PALETTE)
            if is_front:
                self._colour = number if number < _PALETTE else None
            return
        for _ in range(3):
            next(codes, 0)
