"""Announcements of the admins to all users."""

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
_MAX_LEAD_TIME = timedelta(days=5 * 366)


def list_active_announcements(context: Context) -> list[Announcement]:
    """Announcements that have not ended, newest first."""
    with context.store.read() as conn:
        return stored.list_announcements(conn, context.now(), MAX_SHOWN)


def list_all_announcements(context: Context, caller: Caller) -> list[Announcement]:
    """Including ended ones, newest first; for admins."""
    require_admin(caller.user)
    with context.store.read() as conn:
        return stored.list_announcements(conn)


def add_announcement(context: Context, caller: Caller, text: str, ends_at: datetime | None = None) -> Announcement:
    """Shown to all users until `ends_at`; None: until it is removed."""
    require_admin(caller.user)
    now = context.now()
    new = Announcement(0, _checked(text), caller.user.name, now, _checked_end(ends_at, now))

    def change(tx: Transaction, actor: User) -> Announcement:
        require_admin(actor)
        created = stored.add_announcement(tx, new)
        target = f"announcement {created.id}"
        accounts.add_audit_entry(tx, caller, "announcement.add", target, _audit_details(created), now)
        return created

    return write_as_caller(context, caller, change)


def remove_announcement(context: Context, caller: Caller, announcement_id: int) -> None:
    require_admin(caller.user)

    def change(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        announcement = stored.find_announcement(tx.conn, announcement_id)
        if announcement is None:
            raise NotFound(
                f"There is no announcement {announcement_id}.", "`helio announcement list --all` lists them."
            )
        stored.remove_announcement(tx, announcement_id)
        accounts.add_audit_entry(
            tx,
            caller,
            "announcement.remove",
            f"announcement {announcement_id}",
            _audit_details(announcement),
            context.now(),
        )

    write_as_caller(context, caller, change)


def _checked(text: str) -> str:
    """Line ends stay; control characters are refused, because they could manipulate a terminal or hide text."""
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise invalid_field("text", "must not be empty")
    if len(text) > MAX_TEXT_LENGTH:
        raise invalid_field("text", f"must have at most {MAX_TEXT_LENGTH} characters")
    if not all(character.isprintable() or character == "\n" for character in text):
        raise invalid_field("text", "must be plain text: printable characters and line ends")
    return text


def _checked_end(ends_at: datetime | None, now: datetime) -> datetime | None:
    if ends_at is None:
        return None
    if ends_at.tzinfo is None:
        raise invalid_field("ends_at", "must include a time zone")
    if ends_at <= now:
        raise invalid_field("ends_at", "is in the past")
    if ends_at > now + _MAX_LEAD_TIME:
        raise invalid_field("ends_at", "is more than five years away")
    return ends_at.astimezone(UTC)


def _audit_details(announcement: Announcement) -> dict[str, object]:
    return {
        "text": announcement.text,
        "ends_at": announcement.ends_at.isoformat() if announcement.ends_at else None,
    }
