"""News from the admins: everybody reads them, admins write them and take them away."""

from datetime import UTC, datetime, timedelta

from heliostat.errors import NotFound, invalid_field
from heliostat.models import Caller, News, User
from heliostat.services.context import Context
from heliostat.services.rights import require_admin, write_as
from heliostat.store import news as stored
from heliostat.store import people
from heliostat.store.database import Transaction

LONGEST = 2000  # characters
MOST_SHOWN = 20
_FURTHEST = timedelta(days=5 * 366)


def active_news(context: Context) -> list[News]:
    """What everybody should read now, newest first."""
    with context.store.read() as conn:
        return stored.list_news(conn, context.now(), MOST_SHOWN)


def all_news(context: Context, caller: Caller) -> list[News]:
    """Also those that are over, newest first; for admins."""
    require_admin(caller.user)
    with context.store.read() as conn:
        return stored.list_news(conn)


def add_news(context: Context, caller: Caller, text: str, ends_at: datetime | None = None) -> News:
    """Tell everybody until then; None: until it is removed."""
    require_admin(caller.user)
    now = context.now()
    wish = News(0, _checked(text), caller.user.name, now, _checked_end(ends_at, now))

    def change(tx: Transaction, actor: User) -> News:
        require_admin(actor)
        made = stored.add_news(tx, wish)
        people.add_audit(tx, caller, "news.add", f"news {made.id}", _told(made), now)
        return made

    return write_as(context, caller, change)


def remove_news(context: Context, caller: Caller, news_id: int) -> None:
    require_admin(caller.user)

    def change(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        found = stored.find_news(tx.conn, news_id)
        if found is None:
            raise NotFound(f"There is no news {news_id}.", "`helio news list --all` lists them.")
        stored.remove_news(tx, news_id)
        people.add_audit(tx, caller, "news.remove", f"news {news_id}", _told(found), context.now())

    write_as(context, caller, change)


def _checked(text: str) -> str:
    """Lines are kept; nothing in them may steer a terminal or hide what is said."""
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise invalid_field("text", "must not be empty")
    if len(text) > LONGEST:
        raise invalid_field("text", f"must have at most {LONGEST} characters")
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


def _told(news: News) -> dict[str, object]:
    return {"text": news.text, "ends_at": news.ends_at.isoformat() if news.ends_at else None}
