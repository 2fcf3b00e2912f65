"""The audit log, for admins."""

from dataclasses import dataclass

from heliostat.errors import invalid_field
from heliostat.models import AuditEntry, Caller
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin
from heliostat.store import accounts


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Empty fields do not filter."""

    user: str = ""  # the actor
    text: str = ""  # part of the action or of its target


def list_audit_entries(
    context: Context,
    caller: Caller,
    limit: int = 100,
    cursor: str | None = None,
    only: AuditFilter = AuditFilter(),  # noqa: B008 - frozen
) -> tuple[list[AuditEntry], str | None]:
    """Newest first; with the cursor of the next page, None at the end."""
    require_admin(caller.user)
    if not 1 <= limit <= 500:
        raise invalid_field("limit", "must be between 1 and 500")
    before = None if cursor is None else _cursor_id(cursor)
    with context.store.read() as conn:
        entries = accounts.list_audit_entries(conn, limit + 1, before, only.user, only.text)
    more = len(entries) > limit
    return entries[:limit], str(entries[limit - 1].id) if more else None


def _cursor_id(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):  # longer overflows the database
        raise invalid_field("cursor", "must be the next_cursor of an earlier page")
    return int(cursor)
