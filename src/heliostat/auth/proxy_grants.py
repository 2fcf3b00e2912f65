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
from heliostat.auth.web_logins import generate_secret, secret_digest
from heliostat.errors import NotAuthenticated
from heliostat.models import User, WebLogin
from heliostat.models.sessions import ProxyGrant, ProxyTarget
from heliostat.store import accounts, web_logins
from heliostat.store.database import Store, Transaction

GRANT_LIFETIME = timedelta(days=7)
PROGRAM_GRANT_LIFETIME = timedelta(hours=12)
GRANT_CODE_LIFETIME = timedelta(minutes=1)
_MOST_CODES = 10_000
_MOST_EACH = 200


@dataclass(frozen=True, slots=True)
class IssuedCode:
    """What a code stands for."""

    user: str
    target: ProxyTarget
    nonce_digest: str
    login_id: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class BrowserCredentials:
    """What a browser shows of itself to the proxy."""

    nonce: str
    login_cookies: tuple[str, ...] = ()  # cookies of the control plane that came along


@dataclass(frozen=True, slots=True)
class _Holder:
    grant: ProxyGrant
    user: User
    login: WebLogin | None


class ProxyGrants:
    """Codes and cookies of the proxy. Thread-safe. Cookies are kept in the database, codes in memory."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store, self._now = store, now
        self._known: Cache[str, _Holder] = Cache(now)
        self._logins: Cache[str, str] = Cache(now)  # whose they are
        self._lock = threading.Lock()
        self._codes: dict[str, IssuedCode] = {}

    def create_code(self, user: str, target: ProxyTarget, nonce_digest: str, login_id: int) -> str:
        code, now = generate_secret(), self._now()
        with self._lock:
            self._codes = {key: kept for key, kept in self._codes.items() if kept.expires_at > now}
            if len(self._codes) >= _MOST_CODES:
                self._codes.pop(next(iter(self._codes)))
            self._codes[secret_digest(code)] = IssuedCode(
                user, target, nonce_digest, login_id, now + GRANT_CODE_LIFETIME
            )
        return code

    def redeem_code(self, code: str, target: ProxyTarget, browser: "BrowserCredentials") -> str:
        """The secret of a new cookie. The code is used up, also by who shows the wrong things."""
        with self._lock:
            kept = self._codes.pop(secret_digest(code), None)
        fits = kept is not None and kept.target == target and kept.nonce_digest == secret_digest(browser.nonce)
        if (
            kept is None
            or not fits
            or kept.expires_at <= self._now()
            or not self.are_logins_of(kept.user, browser.login_cookies)
        ):
            raise NotAuthenticated("This way in was used already, or is too old.", "Open it once more.")
        return self._keep(kept.user, target, kept.login_id, GRANT_LIFETIME)

    def create_program_grant(self, user: str, target: ProxyTarget) -> tuple[str, datetime]:
        """A secret for a program of this person, and until when it is good."""
        return self._keep(user, target, None, PROGRAM_GRANT_LIFETIME), self._now() + PROGRAM_GRANT_LIFETIME

    def require_user(self, secret: str, target: ProxyTarget) -> User:
        """Whose it is. Raises NotAuthenticated when it is over, or is for another target."""
        digest = secret_digest(secret)
        held = self._known.get(digest, lambda: self._read(digest))
        now, login = self._now(), held.login
        is_out = login is not None and (login.ended_at is not None or login.expires_at <= now)
        if held.grant.target != target or held.grant.expires_at <= now or is_out or not held.user.active:
            raise grant_expired_error()
        return held.user

    def is_cached(self, secret: str) -> bool:
        """Whether `holder` answers without a look at the disk."""
        return self._known.has(secret_digest(secret))

    def clear_cache(self) -> None:
        """Look everybody up again."""
        self._known.clear()
        self._logins.clear()

    def are_logins_of(self, user: str, logins: Sequence[str]) -> bool:
        """Whether logins that a browser shows are nobody else's.

        Where both have one host name, it shows that of the control plane to the proxy too. Every port of that host
        can plant cookies: without this, one of theirs would open their page among this person's own.
        """
        digests = [secret_digest(secret) for secret in logins]
        return all(self._logins.get(digest, partial(self._owner, digest)) in ("", user) for digest in digests)

    def are_logins_cached(self, logins: Sequence[str]) -> bool:
        """Whether `are_of` answers without a look at the disk."""
        return all(self._logins.has(secret_digest(secret)) for secret in logins)

    def _owner(self, digest: str) -> str:
        """Empty: it is no login."""
        with self._store.read() as conn:
            login = web_logins.find_login_by_digest(conn, digest)
        return login.user if login is not None else ""

    def _keep(self, user: str, target: ProxyTarget, login_id: int | None, lasts: timedelta) -> str:
        secret, now = generate_secret(), self._now()
        grant = ProxyGrant(user, target, login_id, now, now + lasts)

        def change(tx: Transaction) -> None:
            web_logins.remove_old_grants(tx, user, now, _MOST_EACH - 1)
            web_logins.add_grant(tx, grant, secret_digest(secret))

        self._store.write(change)
        return secret

    def _read(self, digest: str) -> _Holder:
        with self._store.read() as conn:
            grant = web_logins.find_grant_by_digest(conn, digest)
            user = accounts.find_user(conn, grant.user) if grant else None
            login = web_logins.find_login(conn, grant.login_id) if grant and grant.login_id else None
        if grant is None or user is None or (grant.login_id is not None and login is None):
            raise grant_expired_error()
        return _Holder(grant, user, login)


def grant_expired_error() -> NotAuthenticated:
    return NotAuthenticated("You have not come through Heliostat, or too long ago.", "Open it from its page.")
