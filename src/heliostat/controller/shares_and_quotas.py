"""The rules the queue decides by, as admins have set them: shares, quotas, data classes, reservations, policy."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from heliostat.config import QueueSettings
from heliostat.models import Quota, Reservation
from heliostat.scheduling.policy import DEFAULT_PRIORITY_CLASSES, ChargeRates, SchedulingPolicy
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.store.database import Store, StoreChanges
from heliostat.store.nodes import list_reservations
from heliostat.store.shares_and_quotas import (
    QuotaLevel,
    list_departments,
    list_projects_without_members,
    list_quotas,
)

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class _Known:
    accounts: ShareAccounts
    reservations: tuple[Reservation, ...]
    limits_queued: bool


class SchedulingRules:
    """Keeps what it has read until a commit changes it. Projects come without their members."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: _Known | None = None
        self._changed: list[Callable[[], None]] = []
        store.on_commit(self._on_commit)

    def on_change(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    def share_accounts(self) -> ShareAccounts:
        return self._now_known().accounts

    def reservations(self, now: datetime) -> tuple[Reservation, ...]:
        """Those not over yet: what is past must cost no plan anything."""
        known = self._now_known()
        if known.reservations and min(one.final_end_at for one in known.reservations) <= now:
            left = tuple(one for one in known.reservations if one.final_end_at > now)
            with self._lock:
                if self._known is known:
                    self._known = replace(known, reservations=left)
            return left
        return known.reservations

    def has_queued_gpu_quota(self) -> bool:
        """Is there any quota on what may be in the queue?"""
        return self._now_known().limits_queued

    def _now_known(self) -> _Known:
        with self._lock:
            if self._known is None:
                self._known = self._look()
            return self._known

    def _on_commit(self, changes: StoreChanges) -> None:
        if not changes.rules_changed:
            return
        with self._lock:
            self._known = None
        for changed in self._changed:
            changed()

    def _look(self) -> _Known:
        with self._store.read() as conn:
            accounts = ShareAccounts(
                departments={found.name: found for found in list_departments(conn)},
                projects={found.name: found for found in list_projects_without_members(conn)},
                user_quotas=list_quotas(conn, QuotaLevel.USER),
            )
            reservations = tuple(list_reservations(conn))
        return _Known(accounts, reservations, any(quota.queued_gpus is not None for quota in _quotas(accounts)))


def _quotas(accounts: ShareAccounts) -> list[Quota]:
    of_departments = [department.quota for department in accounts.departments.values()]
    return [*accounts.user_quotas.values(), *of_departments, *(one.quota for one in accounts.projects.values())]


def policy_from_settings(queue: QueueSettings) -> SchedulingPolicy:
    """The one that the settings ask for; with their defaults, it has its own."""
    interactive = replace(DEFAULT_PRIORITY_CLASSES["interactive"], points=float(queue.interactive_points))
    urgent = replace(DEFAULT_PRIORITY_CLASSES["urgent"], gpu_hours_per_month=queue.urgent_gpu_hours_per_month)
    return SchedulingPolicy(
        reservations=queue.backfill_reservations,
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
