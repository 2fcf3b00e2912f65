"""Cells of CSV files that people open in a spreadsheet."""

from typing import TypeVar

T = TypeVar("T")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def quote_formula(value: T) -> T | str:
    """The value; text that a spreadsheet would read as a formula gets a quote in front."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value
