"""Values over time as one line of blocks. Pure."""

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
Values = Sequence[float | None]


def sparkline(values: Values, width: int, top: float) -> str:
    """At most so many characters; `top` fills a character. What is not known is a blank."""
    return "".join(_block(value, top) for value in squeezed(values, width))


def squeezed(values: Values, width: int) -> list[float | None]:
    """The means of equal parts; as they are when there is room."""
    count = len(values)
    if count <= width:
        return list(values)
    ends = [at * count // width for at in range(width + 1)]
    return [mean_of(values[start:end]) for start, end in pairwise(ends)]


def largest(values: Values) -> float | None:
    return max((value for value in values if value is not None), default=None)


def mean_of(values: Values) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _block(value: float | None, top: float) -> str:
    if value is None:
        return " "
    part = value / top if top > 0 else 0.0
    return BLOCKS[min(len(BLOCKS) - 1, max(0, round(part * (len(BLOCKS) - 1))))]
