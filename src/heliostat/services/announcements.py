"""Announcements from the admins: everybody reads them, admins write them and take them away."""

from datetime import UTC, datetime, timedelta

from heliostat.errors import NotFound, invalid_field
from heliostat.models import Announcement, Caller, User
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin, write_as_caller
from heliostat.store import accounts
from heliostat.store import announcements as stored
from heliostat.store.database import Transaction

MAX_TEXT_LENGTH = 2000  # characters
MAX_SHOWN = 20
_FURTHEST = timedelta(days=5 * 366)


def list_active_announcements(context: Context) -> list[Announcement]:
    """What everybody should read now, newest first."""
    with context.store.read() as conn:
        return stored.list_announcements(conn, context.now(), MAX_SHOWN)


def list_all_announcements(context: Context, caller: Caller) -> list[Announcement]:
    """Also those that are over, newest first; for admins."""
    require_admin(caller.user)
    with context.store.read() as conn:
        return stored.list_announcements(conn)


def add_announcement(context: Context, caller: Caller, text: str, ends_at: datetime | None = None) -> Announcement:
    """Tell everybody until then; None: until it is removed."""
    require_admin(caller.user)
    now = context.now()
    wish = Announcement(0, _checked(text), caller.user.name, now, _checked_end(ends_at, now))

    def change(tx: Transaction, actor: User) -> Announcement:
        require_admin(actor)
        made = stored.add_announcement(tx, wish)
        accounts.add_audit_entry(tx, caller, "announcement.add", f"announcement {made.id}", _told(made), now)
        return made

    return write_as_caller(context, caller, change)


def remove_announcement(context: Context, caller: Caller, announcement_id: int) -> None:
    require_admin(caller.user)

    def change(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        found = stored.find_announcement(tx.conn, announcement_id)
        if found is None:
            raise NotFound(
                f"There is no announcement {announcement_id}.", "`helio announcement list --all` lists them."
            )
        stored.remove_announcement(tx, announcement_id)
        accounts.add_audit_entry(
            tx, caller, "announcement.remove", f"announcement {announcement_id}", _told(found), context.now()
        )

    write_as_caller(context, caller, change)


def _checked(text: str) -> str:
    """Lines are kept; nothing in them may steer a terminal or hide what is said."""
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise invalid_field("text", "must not be empty")
    if len(text) > MAX_TEXT_LENGTH:
        raise invalid_field("text", f"must have at most {MAX_TEXT_LENGTH} characters")
    if not all(sign.isprintable() or sign == "\n" for sign in text):
        raise invalid_field("text", "must be plain text: letters, signs and line ends")
    return text


def _checked_end(ends_at: datetime | None, now: datetime) -> datetime | None:
    if ends_at is None:
        return None
    if ends_at.tzinfo is None:
        raise invalid_field("ends_at", "must say its time zone")
    if ends_at <= now:
        raise invalid_field("ends_at", "is in the past")
    if ends_at > now + _FURTHEST:
        raise invalid_field("ends_at", "is more than five years away")
    return ends_at.astimezone(UTC)


def _told(announcement: Announcement) -> dict[str, object]:
    return {
        "text": announcement.text,
        "ends_at": announcement.ends_at.isoformat() if announcement.ends_at else None,
    }
