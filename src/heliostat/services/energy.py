"""Energy of the GPUs of jobs, from the energy counters of GPUs that have one, else estimated from samples of their
power, and the CO2 of its generation."""

from dataclasses import dataclass

from heliostat.config.sections import MonitoringSettings

_JOULES_PER_KWH = 3_600_000.0


@dataclass(frozen=True, slots=True)
class EnergyEstimate:
    kwh: float
    co2_kg: float | None  # None: the CO2 of a kWh is not set
    source: str = "estimate"  # or "measured": by the energy counters of its GPUs, which it did not share

    @classmethod
    def of_joules(
        cls, joules: float, settings: MonitoringSettings, *, is_measured: bool = False
    ) -> "EnergyEstimate":
        kwh, grams = joules / _JOULES_PER_KWH, settings.co2_grams_per_kwh
        co2_kg = None if grams is None else round(kwh * grams / 1000, 4)
        return cls(round(kwh, 4), co2_kg, "measured" if is_measured else "estimate")


def own_part(gpus: float) -> float:
    """The part of the power of its GPUs that a job with a fraction of a GPU is charged for."""
    return min(1.0, gpus) if gpus else 1.0
