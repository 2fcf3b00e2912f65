"""Output of commands: tables that fit the terminal, JSON, icons and colours of states. Rich for terminals only."""

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
    shrinkable: bool = False  # is shortened on a narrow terminal
    optional: bool = False  # is omitted when shortening others is not enough
    merges_into: str = ""  # the column that shows its value when it is omitted
    min_width: int = 18  # characters; below that, optional columns are omitted


_GAP = 2
SHORT_DIGEST_LENGTH = 12  # characters

Cell = str | StateCell
Rows = Iterable[Sequence[Cell]]


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    """One object per line, for streams of objects."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(columns: Sequence[Column], rows: Rows) -> None:
    """Fits the width of a terminal; elsewhere plain text, with nothing shortened."""
    if not sys.stdout.isatty():
        _print_plain(columns, rows)
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(rich_table(columns, rows, console.width))


def rich_table(columns: Sequence[Column], rows: Rows, width: int) -> "Table":
    """Shortens only shrinkable columns such as names; Rich would shorten ids and states too."""
    from rich.table import Table

    rows = list(rows)
    cells = [[rich_cell(cell) for cell in row] for row in rows]
    natural = [max([len(column.title), *(row[at].cell_len for row in cells)]) for at, column in enumerate(columns)]
    widths = fit_columns(columns, natural, width)
    omitted = [at for at, column in enumerate(columns) if column.merges_into and at not in widths]
    if omitted:
        return rich_table(*merge_column(columns, rows, omitted[0]), width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for at, column_width in widths.items():
        justify: Any = "right" if columns[at].right_aligned else "left"
        table.add_column(columns[at].title, justify=justify, width=column_width, no_wrap=True, overflow="ellipsis")
    for row in cells:
        table.add_row(*(row[at] for at in widths))
    return table


def fit_columns(columns: Sequence[Column], natural: Sequence[int], width: int) -> dict[int, int]:
    """The widths of the columns that are shown, by index. `natural`: the widths that would show everything."""
    shown = list(range(len(columns)))
    while True:
        shrinkable = [at for at in shown if columns[at].shrinkable]
        fixed = sum(natural[at] for at in shown if at not in shrinkable)
        left = width - fixed - _GAP * len(shown)
        optional = [at for at in shown if columns[at].optional]
        if left >= sum(min(natural[at], columns[at].min_width) for at in shrinkable) or not optional:
            break
        shown.remove(optional[-1])
    widths = {at: natural[at] for at in shown}
    for nth, at in enumerate(sorted(shrinkable, key=lambda at: natural[at])):
        share = max(1, left // (len(shrinkable) - nth))
        widths[at] = min(natural[at], share)
        left -= widths[at]
    return widths


def merge_column(columns: Sequence[Column], rows: Rows, at: int) -> tuple[list[Column], Rows]:
    """Removes the column at `at`; its values are put before those of the column that it merges into."""
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
        style = STATE_STYLES[cell]
        return Text(f"{style.icon} {cell}", style=style.colour)
    return Text(sanitize_text(cell))


def print_fields(facts: Iterable[tuple[str, Cell | None]]) -> None:
    """One name and value per line; values that are None are omitted."""
    known = [(name, value) for name, value in facts if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        print(f"{name:<{width}}  {format_cell(value)}")


def format_cell(cell: Cell, stream: TextIO | None = None) -> str:
    """A cell as text within a line; with icon and colour only on a terminal."""
    stream = stream or sys.stdout
    if not isinstance(cell, StateCell) or cell not in STATE_STYLES or not stream.isatty():
        return sanitize_text(cell)
    style = STATE_STYLES[cell]
    text = f"{style.icon} {cell}"
    return text if os.environ.get("NO_COLOR") else typer.style(text, fg=style.colour)


def print_message(message: str) -> None:
    """A message for the user on standard error; standard output has only results."""
    print(message, file=sys.stderr)


def sanitize_text(text: str) -> str:
    """Replaces control characters, which could change the terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def print_build_log(texts: Iterable[str], *, quiet: bool) -> None:
    """Prints the output of a build until it ends, without control characters. Quiet: only waits."""
    for text in texts:
        if not quiet:
            sys.stderr.write("".join(char for char in text if char.isprintable() or char == "\n"))


def indent_text(text: str) -> str:
    return "\n".join(f"  {sanitize_text(line)}" for line in text.rstrip("\n").split("\n"))


def format_count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def _print_plain(columns: Sequence[Column], rows: Rows) -> None:
    lines = [[column.title for column in columns], *([sanitize_text(cell) or "-" for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if column.right_aligned else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        print("  ".join(cells).rstrip())
