"""One measured figure, and the words every part uses for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OUR_SYSTEM = "Heliostat"


@dataclass(frozen=True)
class Measurement:
    benchmark: str
    metric: str
    """What was measured; figures of the same part and measure are compared with each other."""
    system: str
    value: float | None
    """None: not measured, and `note` says why."""
    unit: str
    better: Literal["higher", "lower"]
    note: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.benchmark, self.metric


def advantage_ratio(figure: Measurement, ours: Measurement | None) -> float | None:
    """How many times better Heliostat is: above 1 it wins, below 1 it loses. None where nothing compares."""
    if ours is None or figure.system == OUR_SYSTEM or not figure.value or not ours.value:
        return None
    return ours.value / figure.value if figure.better == "higher" else figure.value / ours.value
