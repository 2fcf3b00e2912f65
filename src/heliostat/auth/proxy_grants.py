"""Access of browsers and programs to the proxy, which has its own origin.

    proxy            without a cookie: sets a nonce in the browser, redirects to the control plane with its digest
    control plane    authenticates the user, checks the permission, issues a code: valid once, for one minute, for
                     this target and this nonce
    proxy            exchanges the code and the nonce of the same browser for a cookie for this target

The nonce binds the three steps to one browser: a code is useless in the browser of another user.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from heliostat.auth.cache import Cache
from heliostat.auth.client_address import network_of
from heliostat.auth.web_logins import generate_secret, secret_digest
from heliostat.errors import NotAuthenticated
from heliostat.models import User, WebLogin
from heliostat.models.sessions import ProxyGrant, ProxyTarget
from heliostat.store import accounts, web_logins
from heliostat.store.database import Store, Transaction

GRANT_LIFETIME = timedelta(days=7)
PROGRAM_GRANT_LIFETIME = timedelta(hours=12)
GRANT_CODE_LIFETIME = timedelta(minutes=1)
_MAX_CODES = 10_000
_MAX_GRANTS_PER_USER = 200


@dataclass(frozen=True, slots=True)
class IssuedCode:
    """The data of an issued code."""

    user: str
    target: ProxyTarget
    nonce_digest: str
    login_id: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class BrowserCredentials:
    """Credentials that a browser sends to the proxy."""

    nonce: str
    login_cookies: tuple[str, ...] = ()  # cookies of the control plane
    address: str = ""


@dataclass(frozen=True, slots=True)
class _GrantOrigin:
    login_id: int | None = None  # None: of a program
    address: str = ""


@dataclass(frozen=True, slots=True)
class _GrantHolder:
    grant: ProxyGrant
    user: User
    login: WebLogin | None


class ProxyGrants:
    """Codes and cookies of the proxy. Thread-safe. Cookies are in the database, codes in memory."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store, self._now = store, now
        self._known: Cache[str, _GrantHolder] = Cache(now)
        self._logins: Cache[str, str] = Cache(now)  # owner by digest
        self._lock = threading.Lock()
        self._codes: dict[str, IssuedCode] = {}

    def create_code(self, user: str, target: ProxyTarget, nonce_digest: str, login_id: int) -> str:
        code, now = generate_secret(), self._now()
        with self._lock:
            self._codes = {key: kept for key, kept in self._codes.items() if kept.expires_at > now}
            if len(self._codes) >= _MAX_CODES:
                self._codes.pop(next(iter(self._codes)))
            self._codes[secret_digest(code)] = IssuedCode(
                user, target, nonce_digest, login_id, now + GRANT_CODE_LIFETIME
            )
        return code

    def redeem_code(self, code: str, target: ProxyTarget, browser: "BrowserCredentials") -> str:
        """The secret of a new cookie. The code is used up, also if the other credentials are wrong."""
        with self._lock:
            kept = self._codes.pop(secret_digest(code), None)
        matches = kept is not None and kept.target == target and kept.nonce_digest == secret_digest(browser.nonce)
        if (
            kept is None
            or not matches
            or kept.expires_at <= self._now()
            or not self.are_logins_of(kept.user, browser.login_cookies)
        ):
            raise NotAuthenticated("This link was already used or has expired.", "Open the page again.")
        return self._add_grant(kept.user, target, _GrantOrigin(kept.login_id, browser.address), GRANT_LIFETIME)

    def create_program_grant(self, user: str, target: ProxyTarget) -> tuple[str, datetime]:
        """A secret for a program of this user, and its expiry."""
        return self._add_grant(
            user, target, _GrantOrigin(), PROGRAM_GRANT_LIFETIME
        ), self._now() + PROGRAM_GRANT_LIFETIME

    def require_user(self, secret: str, target: ProxyTarget, address: str | None) -> User:
        """The owner. Raises NotAuthenticated if it has expired or is for another target.

        `address`: of the client, if a browser's cookie may have been copied; it must be where the cookie was set.
        """
        digest = secret_digest(secret)
        holder = self._known.get(digest, lambda: self._read(digest))
        now, login = self._now(), holder.login
        is_copied = address is not None and login is not None and not _is_same(address, holder.grant.address)
        is_logged_out = login is not None and (login.ended_at is not None or login.expires_at <= now)
        if (
            holder.grant.target != target
            or holder.grant.expires_at <= now
            or is_logged_out
            or is_copied
            or not holder.user.active
        ):
            raise grant_expired_error()
        return holder.user

    def is_cached(self, secret: str) -> bool:
        """Whether `require_user` needs no database access."""
        return self._known.has(secret_digest(secret))

    def clear_cache(self) -> None:
        self._known.clear()
        self._logins.clear()

    def are_logins_of(self, user: str, logins: Sequence[str]) -> bool:
        """Whether all valid login cookies of a browser belong to this user.

        If the proxy and the control plane share a host name, browsers send login cookies to both. Every port of
        that host can set cookies: without this check, an attacker could show their own page to this user.
        """
        digests = [secret_digest(secret) for secret in logins]
        return all(self._logins.get(digest, partial(self._owner, digest)) in ("", user) for digest in digests)

    def are_logins_cached(self, logins: Sequence[str]) -> bool:
        """Whether `are_logins_of` needs no database access."""
        return all(self._logins.has(secret_digest(secret)) for secret in logins)

    def _owner(self, digest: str) -> str:
        """Empty: not a login."""
        with self._store.read() as conn:
            login = web_logins.find_login_by_digest(conn, digest)
        return login.user if login is not None else ""

    def _add_grant(self, user: str, target: ProxyTarget, origin: _GrantOrigin, lasts: timedelta) -> str:
        secret, now = generate_secret(), self._now()
        grant = ProxyGrant(user, target, origin.login_id, now, now + lasts, origin.address)

        def change(tx: Transaction) -> None:
            web_logins.remove_old_grants(tx, user, now, _MAX_GRANTS_PER_USER - 1)
            web_logins.add_grant(tx, grant, secret_digest(secret))

        self._store.write(change)
        return secret

    def _read(self, digest: str) -> _GrantHolder:
        with self._store.read() as conn:
            grant = web_logins.find_grant_by_digest(conn, digest)
            user = accounts.find_user(conn, grant.user) if grant else None
            login = web_logins.find_login(conn, grant.login_id) if grant and grant.login_id else None
        if grant is None or user is None or (grant.login_id is not None and login is None):
            raise grant_expired_error()
        return _GrantHolder(grant, user, login)


def _is_same(address: str, other: str) -> bool:
    return network_of(address) == network_of(other)


def grant_expired_error() -> NotAuthenticated:
    return NotAuthenticated("Please log in.", "Run `helio web` and open the page again.")
