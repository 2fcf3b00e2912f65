"""Past forecasts of job starts, compared with the actual starts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForecastRange:
    """Times in seconds since 1970."""

    earliest: float
    likely: float
    latest: float


@dataclass(frozen=True, slots=True)
class PastForecast:
    """The first forecast of a job, and the actual start. Times are in seconds since 1970."""

    made_at: float  # or the later begin time of the job: from then on it waits for resources
    computed: ForecastRange  # before calibration
    shown: ForecastRange
    started_at: float | None = None  # None: the job still waits

    def is_early(self) -> bool:
        return self.started_at is not None and self.started_at < self.shown.earliest

    def is_late(self, now: float) -> bool:
        return (now if self.started_at is None else self.started_at) > self.shown.latest
