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


class Look(NamedTuple):
    icon: str
    colour: str


STATES = {
    "held": Look("‖", "yellow"),
    "pending": Look("○", "cyan"),
    "starting": Look("◔", "blue"),
    "running": Look("●", "green"),
    "completed": Look("✓", "bright_green"),
    "failed": Look("✗", "red"),
    "cancelled": Look("⊘", "bright_black"),
    "timed_out": Look("◷", "magenta"),
    "preempted": Look("↺", "bright_yellow"),
    "lost": Look("?", "bright_red"),
    "up": Look("●", "green"),
    "drained": Look("‖", "yellow"),
    "down": Look("✗", "red"),
    "ok": Look("✓", "bright_green"),
    "warning": Look("!", "yellow"),
    "problem": Look("✗", "red"),
}


class State(str):
    """A cell that is shown with its icon and colour."""

    __slots__ = ()


class Column(NamedTuple):
    title: str
    right: bool = False
    shrinks: bool = False  # gives way when the terminal is narrow
    optional: bool = False  # left out when that is not enough
    joins: str = ""  # the column that then says it too
    least: int = 18  # characters below which others are rather left out


_GAP = 2
DIGEST_SHOWN = 12  # characters of it

Cell = str | State
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
    widths = fit(columns, natural, width)
    joining = [at for at, column in enumerate(columns) if column.joins and at not in widths]
    if joining:
        return rich_table(*joined(columns, rows, joining[0]), width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for at, room in widths.items():
        justify: Any = "right" if columns[at].right else "left"
        table.add_column(columns[at].title, justify=justify, width=room, no_wrap=True, overflow="ellipsis")
    for row in cells:
        table.add_row(*(row[at] for at in widths))
    return table


def fit(columns: Sequence[Column], natural: Sequence[int], width: int) -> dict[int, int]:
    """Which columns are shown, by their place, and how wide each may be."""
    shown = list(range(len(columns)))
    while True:
        shrinking = [at for at in shown if columns[at].shrinks]
        fixed = sum(natural[at] for at in shown if at not in shrinking)
        room = width - fixed - _GAP * len(shown)
        dispensable = [at for at in shown if columns[at].optional]
        if room >= sum(min(natural[at], columns[at].least) for at in shrinking) or not dispensable:
            break
        shown.remove(dispensable[-1])
    widths = {at: natural[at] for at in shown}
    for nth, at in enumerate(sorted(shrinking, key=lambda at: natural[at])):
        share = max(1, room // (len(shrinking) - nth))
        widths[at] = min(natural[at], share)
        room -= widths[at]
    return widths


def joined(columns: Sequence[Column], rows: Rows, at: int) -> tuple[list[Column], Rows]:
    """Without this column: what it says stands before what the column says that it joins."""
    into = [column.title for column in columns].index(columns[at].joins)
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

    if isinstance(cell, State) and cell in STATES:
        look = STATES[cell]
        return Text(f"{look.icon} {cell}", style=look.colour)
    return Text(clean(cell))


def print_facts(facts: Iterable[tuple[str, Cell | None]]) -> None:
    """Name and value, one a line; what is None is left out."""
    known = [(name, value) for name, value in facts if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        print(f"{name:<{width}}  {styled(value)}")


def styled(cell: Cell, stream: TextIO | None = None) -> str:
    """A cell within a line; with icon and colour only on a terminal."""
    stream = stream or sys.stdout
    if not isinstance(cell, State) or cell not in STATES or not stream.isatty():
        return clean(cell)
    look = STATES[cell]
    text = f"{look.icon} {cell}"
    return text if os.environ.get("NO_COLOR") else typer.style(text, fg=look.colour)


def say(message: str) -> None:
    """To the person, beside the result."""
    print(message, file=sys.stderr)


def clean(text: str) -> str:
    """Without characters that could steer the terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def print_build(texts: Iterable[str], *, quiet: bool) -> None:
    """What a build says, to its end; no sign of it can steer the terminal. Quiet: only to its end."""
    for text in texts:
        if not quiet:
            sys.stderr.write("".join(sign for sign in text if sign.isprintable() or sign == "\n"))


def indented(text: str) -> str:
    return "\n".join(f"  {clean(line)}" for line in text.rstrip("\n").split("\n"))


def counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _print_plain(columns: Sequence[Column], rows: Rows) -> None:
    lines = [[column.title for column in columns], *([clean(cell) or "-" for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        print("  ".join(cells).rstrip())
