"""Scheduling rules set by admins: shares, quotas, data classes, reservations and policy."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from heliostat.models import Quota, Reservation
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.store.database import Store, StoreChanges
from heliostat.store.nodes import list_reservations
from heliostat.store.projects_and_quotas import (
    QuotaLevel,
    list_departments,
    list_projects_without_members,
    list_quotas,
)


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
