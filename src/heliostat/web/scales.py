"""From numbers and times to places on an axis, and the round ones among them that get a label."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime

_STEPS = (60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 30 * 86400)
_MOST_TIMES = 7


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` lie between two places; what is outside is drawn at the edge."""

    low: float
    high: float
    low_at: float
    high_at: float

    def __call__(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return self.low_at + min(1.0, max(0.0, part)) * (self.high_at - self.low_at)


def number_ticks(top: float) -> list[float]:
    """From 0 in round steps, the last at or above the top."""
    rough = top / 4
    size = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    return [round(step * count, 10) for count in range(math.ceil(top / step - 1e-9) + 1)]


def time_ticks(start: float, end: float) -> list[tuple[datetime, str, str]]:
    """Round times, how a browser should write them (`time` or `date`), and their text in UTC."""
    length = end - start
    step = next((step for step in _STEPS if length / step <= _MOST_TIMES), _STEPS[-1])
    while length / step > _MOST_TIMES:
        step *= 2
    first = math.ceil(start / step) * step
    form = "date" if step >= 86400 else "time"
    found = []
    for count in range(int((end - first) // step) + 1):
        at = datetime.fromtimestamp(first + count * step, UTC)
        found.append((at, form, f"{at.day} {at:%b}" if form == "date" else f"{at:%H:%M}"))
    return found
