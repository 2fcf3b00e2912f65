"""HTML that notebooks show for jobs, workflows and sweeps. All values are escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_MAX_ROWS = 50


def html_fields(title: str, fields: Mapping[str, Any]) -> str:
    """A title and a table of names and values; values that are None or empty are omitted."""
    shown = {name: value for name, value in fields.items() if value not in (None, "")}
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{_cell(value)}</td></tr>" for name, value in shown.items())
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The first rows, and how many more there are."""
    every = list(rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in every[:_MAX_ROWS])
    more = len(every) - _MAX_ROWS
    note = f"<p>{more} more</p>" if more > 0 else ""
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>{note}"


def _cell(value: Any) -> str:
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        return f'<a href="{escape(value)}" target="_blank" rel="noopener">{escape(value)}</a>'
    return escape("" if value is None else f"{value:g}" if isinstance(value, float) else str(value))
