"""Energy of the GPUs of jobs, estimated from samples of their power, and the CO2 of its generation."""

from dataclasses import dataclass

from heliostat.config.sections import MonitoringSettings

_JOULES_PER_KWH = 3_600_000.0


@dataclass(frozen=True, slots=True)
class EnergyEstimate:
    kwh: float
    co2_kg: float | None  # None: the CO2 of a kWh is not set

    @classmethod
    def of_joules(cls, joules: float, settings: MonitoringSettings) -> "EnergyEstimate":
        kwh, grams = joules / _JOULES_PER_KWH, settings.co2_grams_per_kwh
        return cls(round(kwh, 4), None if grams is None else round(kwh * grams / 1000, 4))


def own_part(gpus: float) -> float:
    """The part of the power of its GPUs that a job with a fraction of a GPU is charged for."""
    return min(1.0, gpus) if gpus else 1.0
