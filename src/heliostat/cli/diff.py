"""`helio diff`: the differences between two jobs."""

from typing import Annotated

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import (
    Column,
    JsonFlag,
    format_count,
    print_json,
    print_table,
)
from heliostat.models.provenance import COMPARISON_SECTIONS

_MAX_CELL_LENGTH = 60


def diff(
    first: Annotated[int, typer.Argument(metavar="A")],
    second: Annotated[int, typer.Argument(metavar="B")],
    as_json: JsonFlag = False,
) -> None:
    """Show the differences between two jobs.

    Compares request, code, node, result and time. For environment variables it shows names, never values.
    """
    compared = connect().jobs.diff(first, second)
    if as_json:
        print_json(compared)
        return
    columns = (Column(""), Column(f"JOB {first}", shrinkable=True), Column(f"JOB {second}", shrinkable=True))
    for section, title in COMPARISON_SECTIONS.items():
        rows = [difference for difference in compared["differences"] if difference["section"] == section]
        if not rows:
            continue
        print(f"{title}:")
        print_table(
            columns,
            (
                [difference["field"], _short(difference["first"]), _short(difference["second"])]
                for difference in rows
            ),
        )
        print()
    same = [COMPARISON_SECTIONS[section].lower() for section in compared["same"]]
    print(f"Identical: {', '.join(same)}." if same else "No section is identical.")


def _short(text: str) -> str:
    line, *more = text.split("\n") if text else ["-"]
    short = line if len(line) <= _MAX_CELL_LENGTH else f"{line[: _MAX_CELL_LENGTH - 1]}…"
    return f"{short} (+{format_count(len(more), 'line')})" if more else short
