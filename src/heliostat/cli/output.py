"""How results look: tables that fit, JSON, one colour and icon per state. Rich is for terminals only."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class StateStyle(NamedTuple):
    icon: str
    colour: str


STATE_STYLES = {
    "held": StateStyle("‖", "yellow"),
    "pending": StateStyle("○", "cyan"),
    "starting": StateStyle("◔", "blue"),
    "running": StateStyle("●", "green"),
    "completed": StateStyle("✓", "bright_green"),
    "failed": StateStyle("✗", "red"),
    "cancelled": StateStyle("⊘", "bright_black"),
    "timed_out": StateStyle("◷", "magenta"),
    "preempted": StateStyle("↺", "bright_yellow"),
    "lost": StateStyle("?", "bright_red"),
    "up": StateStyle("●", "green"),
    "drained": StateStyle("‖", "yellow"),
    "down": StateStyle("✗", "red"),
    "ok": StateStyle("✓", "bright_green"),
    "warning": StateStyle("!", "yellow"),
    "problem": StateStyle("✗", "red"),
}


class StateCell(str):
    """A cell that is shown with its icon and colour."""

    __slots__ = ()


class Column(NamedTuple):
    title: str
    right_aligned: bool = False
    shrinkable: bool = False  # gives way when the terminal is narrow
    optional: bool = False  # left out when that is not enough
    merges_into: str = ""  # the column that then says it too
    min_width: int = 18  # characters below which others are rather left out


_GAP = 2
SHORT_DIGEST_LENGTH = 12  # characters of it

Cell = str | StateCell
Rows = Iterable[Sequence[Cell]]


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    """One of many."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(columns: Sequence[Column], rows: Rows) -> None:
    """On a terminal it fits the width; elsewhere it is plain and nothing is cut off."""
    if not sys.stdout.isatty():
        _print_plain(columns, rows)
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(rich_table(columns, rows, console.width))


def rich_table(columns: Sequence[Column], rows: Rows, width: int) -> "Table":
    """Rich would squeeze all columns alike; ours keep ids and states whole and shorten names and reasons."""
    from rich.table import Table

    rows = list(rows)
    cells = [[rich_cell(cell) for cell in row] for row in rows]
    natural = [max([len(column.title), *(row[at].cell_len for row in cells)]) for at, column in enumerate(columns)]
    widths = fit_columns(columns, natural, width)
    joining = [at for at, column in enumerate(columns) if column.merges_into and at not in widths]
    if joining:
        return rich_table(*merge_column(columns, rows, joining[0]), width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for at, room in widths.items():
        justify: Any = "right" if columns[at].right_aligned else "left"
        table.add_column(columns[at].title, justify=justify, width=room, no_wrap=True, overflow="ellipsis")
    for row in cells:
        table.add_row(*(row[at] for at in widths))
    return table


def fit_columns(columns: Sequence[Column], natural: Sequence[int], width: int) -> dict[int, int]:
    """Which columns are shown, by their place, and how wide each may be."""
    shown = list(range(len(columns)))
    while True:
        shrinking = [at for at in shown if columns[at].shrinkable]
        fixed = sum(natural[at] for at in shown if at not in shrinking)
        room = width - fixed - _GAP * len(shown)
        dispensable = [at for at in shown if columns[at].optional]
        if room >= sum(min(natural[at], columns[at].min_width) for at in shrinking) or not dispensable:
            break
        shown.remove(dispensable[-1])
    widths = {at: natural[at] for at in shown}
    for nth, at in enumerate(sorted(shrinking, key=lambda at: natural[at])):
        share = max(1, room // (len(shrinking) - nth))
        widths[at] = min(natural[at], share)
        room -= widths[at]
    return widths


def merge_column(columns: Sequence[Column], rows: Rows, at: int) -> tuple[list[Column], Rows]:
    """Without this column: what it says stands before what the column says that it joins."""
    into = [column.title for column in columns].index(columns[at].merges_into)
    both = columns[into]._replace(title=f"{columns[at].title}, {columns[into].title}")
    narrow = [both if place == into else column for place, column in enumerate(columns) if place != at]
    return narrow, [
        [_both(row[at], row[into]) if place == into else cell for place, cell in enumerate(row) if place != at]
        for row in rows
    ]


def _both(first: Cell, second: Cell) -> Cell:
    return "; ".join(cell for cell in (first, second) if cell not in ("", "-"))


def rich_cell(cell: Cell) -> "Text":
    from rich.text import Text

    if isinstance(cell, StateCell) and cell in STATE_STYLES:
        look = STATE_STYLES[cell]
        return Text(f"{look.icon} {cell}", style=look.colour)
    return Text(sanitize_text(cell))


def print_fields(facts: Iterable[tuple[str, Cell | None]]) -> None:
    """Name and value, one a line; what is None is left out."""
    known = [(name, value) for name, value in facts if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        print(f"{name:<{width}}  {format_cell(value)}")


def format_cell(cell: Cell, stream: TextIO | None = None) -> str:
    """A cell within a line; with icon and colour only on a terminal."""
    stream = stream or sys.stdout
    if not isinstance(cell, StateCell) or cell not in STATE_STYLES or not stream.isatty():
        return sanitize_text(cell)
    look = STATE_STYLES[cell]
    text = f"{look.icon} {cell}"
    return text if os.environ.get("NO_COLOR") else typer.style(text, fg=look.colour)


def print_message(message: str) -> None:
    """To the person, beside the result."""
    print(message, file=sys.stderr)


def sanitize_text(text: str) -> str:
    """Without characters that could steer the terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def print_build_log(texts: Iterable[str], *, quiet: bool) -> None:
    """What a build says, to its end; no sign of it can steer the terminal. Quiet: only to its end."""
    for text in texts:
        if not quiet:
            sys.stderr.write("".join(sign for sign in text if sign.isprintable() or sign == "\n"))


def indent_text(text: str) -> str:
    return "\n".join(f"  {sanitize_text(line)}" for line in text.rstrip("\n").split("\n"))


def format_count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _print_plain(columns: Sequence[Column], rows: Rows) -> None:
    lines = [[column.title for column in columns], *([sanitize_text(cell) or "-" for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if column.right_aligned else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        print("  ".join(cells).rstrip())
