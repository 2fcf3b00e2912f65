"""The way from the control plane to the proxy, which has an origin of its own.

    proxy        no cookie: sets a nonce in the browser, sends it to the control plane with the nonce's digest
    control      who are you, may you: a code that is good once, for a minute, for this target and this nonce
    proxy        the code and the nonce of the same browser: a cookie for this target, on the proxy's origin

The nonce ties the three steps to one browser: a code that somebody slips to another person opens nothing there.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from heliostat.auth.cache import Cache
from heliostat.auth.web import digest_of, new_secret
from heliostat.errors import NotAuthenticated
from heliostat.models import User, WebLogin
from heliostat.models.sessions import Grant, Target
from heliostat.store import people, web_logins
from heliostat.store.database import Store, Transaction

LASTS = timedelta(days=7)
PROGRAM_LASTS = timedelta(hours=12)
CODE_LASTS = timedelta(minutes=1)
_MOST_CODES = 10_000
_MOST_EACH = 200


@dataclass(frozen=True, slots=True)
class Pass:
    """What a code stands for."""

    user: str
    target: Target
    nonce_digest: str
    login_id: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Shown:
    """What a browser shows of itself to the proxy."""

    nonce: str
    logins: tuple[str, ...] = ()  # cookies of the control plane that came along


@dataclass(frozen=True, slots=True)
class _Holder:
    grant: Grant
    user: User
    login: WebLogin | None


class Grants:
    """Codes and cookies of the proxy. Thread-safe. Cookies are kept in the database, codes in memory."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store, self._now = store, now
        self._known: Cache[str, _Holder] = Cache(now)
        self._logins: Cache[str, str] = Cache(now)  # whose they are
        self._lock = threading.Lock()
        self._codes: dict[str, Pass] = {}

    def new_code(self, user: str, target: Target, nonce_digest: str, login_id: int) -> str:
        code, now = new_secret(), self._now()
        with self._lock:
            self._codes = {key: kept for key, kept in self._codes.items() if kept.until > now}
            if len(self._codes) >= _MOST_CODES:
                self._codes.pop(next(iter(self._codes)))
            self._codes[digest_of(code)] = Pass(user, target, nonce_digest, login_id, now + CODE_LASTS)
        return code

    def redeem(self, code: str, target: Target, browser: "Shown") -> str:
        """The secret of a new cookie. The code is used up, also by who shows the wrong things."""
        with self._lock:
            kept = self._codes.pop(digest_of(code), None)
        fits = kept is not None and kept.target == target and kept.nonce_digest == digest_of(browser.nonce)
        if kept is None or not fits or kept.until <= self._now() or not self.are_of(kept.user, browser.logins):
            raise NotAuthenticated("This way in was used already, or is too old.", "Open it once more.")
        return self._keep(kept.user, target, kept.login_id, LASTS)

    def for_program(self, user: str, target: Target) -> tuple[str, datetime]:
        """A secret for a program of this person, and until when it is good."""
        return self._keep(user, target, None, PROGRAM_LASTS), self._now() + PROGRAM_LASTS

    def holder(self, secret: str, target: Target) -> User:
        """Whose it is. Raises NotAuthenticated when it is over, or is for another target."""
        digest = digest_of(secret)
        held = self._known.get(digest, lambda: self._read(digest))
        now, login = self._now(), held.login
        is_out = login is not None and (login.ended_at is not None or login.expires_at <= now)
        if held.grant.target != target or held.grant.expires_at <= now or is_out or not held.user.active:
            raise over()
        return held.user

    def is_known(self, secret: str) -> bool:
        """Whether `holder` answers without a look at the disk."""
        return self._known.has(digest_of(secret))

    def forget(self) -> None:
        """Look everybody up again."""
        self._known.clear()
        self._logins.clear()

    def are_of(self, user: str, logins: Sequence[str]) -> bool:
        """Whether logins that a browser shows are nobody else's.

        Where both have one host name, it shows that of the control plane to the proxy too. Every port of that host
        can plant cookies: without this, one of theirs would open their page among this person's own.
        """
        digests = [digest_of(secret) for secret in logins]
        return all(self._logins.get(digest, partial(self._owner, digest)) in ("", user) for digest in digests)

    def are_known(self, logins: Sequence[str]) -> bool:
        """Whether `are_of` answers without a look at the disk."""
        return all(self._logins.has(digest_of(secret)) for secret in logins)

    def _owner(self, digest: str) -> str:
        """Empty: it is no login."""
        with self._store.read() as conn:
            login = web_logins.login_by_digest(conn, digest)
        return login.user if login is not None else ""

    def _keep(self, user: str, target: Target, login_id: int | None, lasts: timedelta) -> str:
        secret, now = new_secret(), self._now()
        grant = Grant(user, target, login_id, now, now + lasts)

        def change(tx: Transaction) -> None:
            web_logins.drop_old_grants(tx, user, now, _MOST_EACH - 1)
            web_logins.add_grant(tx, grant, digest_of(secret))

        self._store.write(change)
        return secret

    def _read(self, digest: str) -> _Holder:
        with self._store.read() as conn:
            grant = web_logins.grant_by_digest(conn, digest)
            user = people.find_user(conn, grant.user) if grant else None
            login = web_logins.login_by_id(conn, grant.login_id) if grant and grant.login_id else None
        if grant is None or user is None or (grant.login_id is not None and login is None):
            raise over()
        return _Holder(grant, user, login)


def over() -> NotAuthenticated:
    return NotAuthenticated("You have not come through Heliostat, or too long ago.", "Open it from its page.")
