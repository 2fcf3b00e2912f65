"""Scheduling rules set by admins: shares, quotas, data classes, reservations and policy."""

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
class _CachedRules:
    accounts: ShareAccounts
    reservations: tuple[Reservation, ...]
    has_queued_gpu_quota: bool


class SchedulingRules:
    """Cached until a commit changes them. Projects are read without their members."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._cached: _CachedRules | None = None
        self._callbacks: list[Callable[[], None]] = []
        store.on_commit(self._on_commit)

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def share_accounts(self) -> ShareAccounts:
        return self._cached_rules().accounts

    def reservations(self, now: datetime) -> tuple[Reservation, ...]:
        """Current and future reservations; past ones would slow down every plan."""
        cached = self._cached_rules()
        if cached.reservations and min(reservation.final_end_at for reservation in cached.reservations) <= now:
            left = tuple(reservation for reservation in cached.reservations if reservation.final_end_at > now)
            with self._lock:
                if self._cached is cached:
                    self._cached = replace(cached, reservations=left)
            return left
        return cached.reservations

    def has_queued_gpu_quota(self) -> bool:
        """Whether any quota limits queued GPUs."""
        return self._cached_rules().has_queued_gpu_quota

    def _cached_rules(self) -> _CachedRules:
        with self._lock:
            if self._cached is None:
                self._cached = self._read()
            return self._cached

    def _on_commit(self, changes: StoreChanges) -> None:
        if not changes.rules_changed:
            return
        with self._lock:
            self._cached = None
        for callback in self._callbacks:
            callback()

    def _read(self) -> _CachedRules:
        with self._store.read() as conn:
            accounts = ShareAccounts(
                departments={department.name: department for department in list_departments(conn)},
                projects={project.name: project for project in list_projects_without_members(conn)},
                user_quotas=list_quotas(conn, QuotaLevel.USER),
            )
            reservations = tuple(list_reservations(conn))
        return _CachedRules(
            accounts, reservations, any(quota.queued_gpus is not None for quota in _quotas(accounts))
        )


def _quotas(accounts: ShareAccounts) -> list[Quota]:
    of_departments = [department.quota for department in accounts.departments.values()]
    return [
        *accounts.user_quotas.values(),
        *of_departments,
        *(project.quota for project in accounts.projects.values()),
    ]


def policy_from_settings(queue: QueueSettings) -> SchedulingPolicy:
    """The policy from the settings."""
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
