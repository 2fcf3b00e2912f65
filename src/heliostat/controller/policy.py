"""The policy that the settings of an installation ask for."""

from dataclasses import replace

from heliostat.config import Settings
from heliostat.scheduling.policy import CLASSES, Charges, Policy

_HOUR = 3600.0


def policy_from(settings: Settings) -> Policy:
    """With the settings' defaults, the policy's own defaults."""
    interactive = replace(CLASSES["interactive"], points=float(settings.interactive_points))
    urgent = replace(CLASSES["urgent"], gpu_hours_per_month=settings.urgent_gpu_hours_per_month)
    return Policy(
        reservations=settings.backfill_reservations,
        half_life_seconds=settings.half_life_days * 24 * _HOUR,
        share_weight=float(settings.share_weight),
        size_weight=float(settings.size_weight),
        assumed_limit_seconds=settings.assumed_limit_hours * _HOUR,
        preempts=settings.preemption,
        protection_seconds=float(settings.preemption_protection_seconds),
        classes={**CLASSES, "interactive": interactive, "urgent": urgent},
        charges=_charges(settings),
    )


def _charges(settings: Settings) -> Charges:
    by_type = {kind.lower(): float(charge) for kind, charge in settings.gpu_charges.items()}
    return Charges(gpus=by_type, cpu=float(settings.cpu_charge), memory_gib=float(settings.memory_gib_charge))
