"""The scheduling policy that the section [queue] of `cluster.toml` describes."""

from dataclasses import replace

from heliostat.config import QueueSettings
from heliostat.scheduling.policy import DEFAULT_PRIORITY_CLASSES, ChargeRates, SchedulingPolicy

_HOUR = 3600.0


def policy_from_settings(queue: QueueSettings) -> SchedulingPolicy:
    """The policy from the settings."""
    interactive = replace(DEFAULT_PRIORITY_CLASSES["interactive"], points=float(queue.interactive_points))
    urgent = replace(DEFAULT_PRIORITY_CLASSES["urgent"], gpu_hours_per_month=queue.urgent_gpu_hours_per_month)
    return SchedulingPolicy(
        backfill_reservations=queue.backfill_reservations,
        half_life_seconds=queue.half_life_days * 24 * _HOUR,
        share_weight=float(queue.share_weight),
        size_weight=float(queue.size_weight),
        assumed_limit_seconds=queue.assumed_limit_hours * _HOUR,
        preempts=queue.preemption,
        protection_seconds=float(queue.preemption_protection_seconds),
        classes={**DEFAULT_PRIORITY_CLASSES, "interactive": interactive, "urgent": urgent},
        charges=_charges(queue),
    )


def _charges(queue: QueueSettings) -> ChargeRates:
    by_type = {kind.lower(): float(charge) for kind, charge in queue.gpu_charges.items()}
    return ChargeRates(gpus=by_type, cpu=float(queue.cpu_charge), memory_gib=float(queue.memory_gib_charge))
