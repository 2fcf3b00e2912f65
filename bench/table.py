"""Figures as a Markdown table, which reads well in a terminal too, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from bench.measurements import OUR_SYSTEM, Measurement, advantage_ratio

HEADER = ("part", "measure", "system", "value", f"{OUR_SYSTEM} is", "note")


def format_as_markdown(figures: Sequence[Measurement]) -> str:
    rows = [HEADER, *(_row(figure, _ours(figure, figures)) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [_line(row, widths) for row in rows]
    rule = "|".join("-" * (width + 2) for width in widths)
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def format_as_json(machine: str, figures: Sequence[Measurement]) -> str:
    rows = [{**asdict(figure), "ratio": advantage_ratio(figure, _ours(figure, figures))} for figure in figures]
    return json.dumps({"machine": machine, "figures": rows}, indent=2)


def _ours(figure: Measurement, figures: Sequence[Measurement]) -> Measurement | None:
    """The figure of ours that this one is compared with."""
    return next((other for other in figures if other.system == OUR_SYSTEM and other.key == figure.key), None)


def _row(figure: Measurement, ours: Measurement | None) -> tuple[str, ...]:
    value = "-" if figure.value is None else f"{_short(figure.value)} {figure.unit}"
    return (
        figure.benchmark,
        figure.metric,
        figure.system,
        value,
        _verdict(advantage_ratio(figure, ours)),
        figure.note,
    )


def _verdict(times: float | None) -> str:
    return "" if times is None else f"{_short(times)}x better" if times >= 1 else f"{_short(1 / times)}x worse"


def _short(number: float) -> str:
    """Three figures are more than a shared machine can promise."""
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return f"| {cells} |"
