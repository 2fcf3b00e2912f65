"""GPUs over time: which were used, in steps of five minutes. Pure.

The steps are those to which old samples are rolled up, so the result does not change with their age.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliostat.models.samples import DEVICE_COLUMNS, USAGE_COLUMNS

STEP_SECONDS = 300


@dataclass(frozen=True, slots=True, eq=False)
class GpuUtilisation:
    """Steps from `first`, in seconds since 1970, by GPUs; NaN: unknown."""

    first: int
    percent: NDArray[np.float64]

    @classmethod
    def from_samples(cls, first: int, values: NDArray[np.float64], gpus: int) -> "GpuUtilisation":
        """From the columns of a job; GPUs without a column are unknown."""
        percent = values[:, len(USAGE_COLUMNS) :: len(DEVICE_COLUMNS)][:, :gpus]
        missing = gpus - percent.shape[1]
        if not missing:
            return cls(first, percent)
        return cls(first, np.pad(percent, ((0, 0), (0, missing)), constant_values=np.nan))

    def hours(self, idle_percent: float) -> tuple[float, float]:
        """GPU-hours of used and of idle GPUs."""
        used, idle = (self.percent >= idle_percent).sum(), (self.percent < idle_percent).sum()
        return float(used) * STEP_SECONDS / 3600, float(idle) * STEP_SECONDS / 3600

    def idle_periods(self, idle_percent: float) -> list[tuple[int, int]]:
        """Periods in which all GPUs are known to be unused, in order: begin and end."""
        is_idle = (self.percent < idle_percent).all(axis=1) & (self.percent.shape[1] > 0)
        edges = np.flatnonzero(np.diff(is_idle.astype(np.int8), prepend=0, append=0))
        times = [self.first + int(edge) * STEP_SECONDS for edge in edges]
        return list(zip(times[::2], times[1::2], strict=True))

    def idle_since(self, idle_percent: float) -> int | None:
        """Begin of the idle period that lasts until the end; None: the newest step is used or unknown."""
        periods = self.idle_periods(idle_percent)
        end = self.first + len(self.percent) * STEP_SECONDS
        return periods[-1][0] if periods and periods[-1][1] == end else None
