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

    Console(highlight=False).print(rich_table(columns, rows))


def rich_table(columns: Sequence[Column], rows: Rows) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=8 if column.shrinks else None,
        )
    for row in rows:
        table.add_row(*(rich_cell(cell) for cell in row))
    return table


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
