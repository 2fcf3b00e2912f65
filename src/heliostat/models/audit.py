"""Entries of the audit log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An action of a user, its target and its origin."""

    id: int
    at: datetime
    user: str
    via: str
    address: str
    action: str  # job.cancel, user.create…
    target: str
    detail: Mapping[str, object] = field(default_factory=dict)
