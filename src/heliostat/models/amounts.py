"""Amounts in sentences and on pages: counts, sizes and percentages. Columns of the command line are narrower."""

from collections.abc import Sequence


def format_number(value: float) -> str:
    """`12,345`; fractions of a GPU: `0.5`."""
    return f"{value:,.2f}".rstrip("0").rstrip(".") if value != int(value) else f"{int(value):,}"


def format_noun(count: float, singular: str, plural: str = "") -> str:
    """`job` for 1, otherwise `jobs`."""
    return singular if count == 1 else plural or singular + "s"


def format_count(count: float, singular: str, plural: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{format_number(count)} {format_noun(count, singular, plural)}"


def format_size(mib: float) -> str:
    """`512 MiB`, `16 GiB`, `1.5 TiB`."""
    for unit, step in (("TiB", 2**20), ("GiB", 2**10)):
        if mib >= step:
            return f"{mib / step:.1f}".removesuffix(".0") + f" {unit}"
    return f"{mib:.0f} MiB"


def format_percent(fraction: float) -> str:
    """`78%` for 0.78."""
    return f"{100 * fraction:.0f}%"


def join_words(words: Sequence[str]) -> str:
    """`2 GPUs, 8 CPUs and 16 GiB`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
