"""The policy that the settings of an installation ask for."""

from dataclasses import replace

from heliostat.config import Settings
from heliostat.scheduling.policy import CLASSES, Charges, Policy

_HOUR = 3600.0


def policy_from(settings: Settings) -> Policy:
    """With the settings' defaults, the policy's own defaults."""
    interactive = replace(CLASSES["interactive"], points=float(settings.queue.interactive_points))
    urgent = replace(CLASSES["urgent"], gpu_hours_per_month=settings.queue.urgent_gpu_hours_per_month)
    return Policy(
        reservations=settings.queue.backfill_reservations,
        half_life_seconds=settings.queue.half_life_days * 24 * _HOUR,
        share_weight=float(settings.queue.share_weight),
        size_weight=float(settings.queue.size_weight),
        assumed_limit_seconds=settings.queue.assumed_limit_hours * _HOUR,
        preempts=settings.queue.preemption,
        protection_seconds=float(settings.queue.preemption_protection_seconds),
        classes={**CLASSES, "interactive": interactive, "urgent": urgent},
        charges=_charges(settings),
    )


def _charges(settings: Settings) -> Charges:
    by_type = {kind.lower(): float(charge) for kind, charge in settings.queue.gpu_charges.items()}
    return Charges(
        gpus=by_type, cpu=float(settings.queue.cpu_charge), memory_gib=float(settings.queue.memory_gib_charge)
    )
