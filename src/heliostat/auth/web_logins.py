"""Logins of browsers: cookies, one-time login codes, and CSRF tokens."""

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from heliostat.auth.cache import Cache
from heliostat.auth.client_address import network_of
from heliostat.errors import Forbidden, NotAuthenticated
from heliostat.models import User, WebLogin
from heliostat.store import accounts, web_logins
from heliostat.store.database import Store

LOGIN_LIFETIME = timedelta(days=7)
IDLE_TIMEOUT = timedelta(hours=12)  # since the last page opened by the user
LOGIN_CODE_LIFETIME = timedelta(minutes=5)
_UPDATE_INTERVAL = timedelta(minutes=5)  # of `seen_at`
_MAX_CODES_PER_USER = 5

_BYTES = 32


@dataclass(frozen=True, slots=True)
class LoggedInBrowser:
    login: WebLogin
    user: User


class WebLogins:
    """Finds the user of a cookie. Thread-safe, with a short-lived cache."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store, self._now = store, now
        self._known: Cache[str, LoggedInBrowser] = Cache(now)
        self._codes = _Codes(now)
        self.create_code, self.redeem_code, self.drop_codes = self._codes.new, self._codes.redeem, self._codes.drop
        self.find_user_of_code = self._codes.find_user

    def require_browser(self, secret: str, *, address: str | None, in_use: bool = True) -> LoggedInBrowser:
        """Raises NotAuthenticated if the login has ended.

        `address`: of the client, if the cookie may have been copied; it must be where the login began.
        `in_use`: the user acts, so it is not idle.
        """
        digest = secret_digest(secret)
        browser = self._known.get(digest, lambda: self._read(digest))
        now = self._now()
        login = browser.login
        if login.ended_at is not None or login.expires_at <= now or now - login.seen_at > IDLE_TIMEOUT:
            raise not_logged_in_error()
        if address is not None and network_of(address) != network_of(login.address):
            raise not_logged_in_error()
        if not browser.user.active:
            raise Forbidden(f"The account {login.user} is deactivated.", "An admin can activate it again.")
        if in_use and now - login.seen_at > _UPDATE_INTERVAL:
            self._store.submit_write(partial(web_logins.set_login_last_seen, login_id=login.id, at=now))
            self._known.clear()
        return browser

    def clear_cache(self) -> None:
        self._known.clear()

    def _read(self, digest: str) -> LoggedInBrowser:
        with self._store.read() as conn:
            login = web_logins.find_login_by_digest(conn, digest)
            user = accounts.find_user(conn, login.user) if login else None
        if login is None or user is None:
            raise not_logged_in_error()
        return LoggedInBrowser(login, user)


def generate_secret() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def secret_digest(secret: str) -> str:
    """The stored digest. Plain SHA-256 is enough for random secrets."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def not_logged_in_error() -> NotAuthenticated:
    return NotAuthenticated("You are not logged in, or your login has expired.", "Log in again.")


class _Codes:
    """One-time login codes, valid for a few minutes. In memory: a restart invalidates them."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[str, datetime]] = {}

    def new(self, user: str) -> str:
        code, now = generate_secret(), self._now()
        with self._lock:
            self._waiting = {key: kept for key, kept in self._waiting.items() if kept[1] > now}
            own = [key for key, kept in self._waiting.items() if kept[0] == user]
            for key in own[: max(0, len(own) - _MAX_CODES_PER_USER + 1)]:
                del self._waiting[key]
            self._waiting[secret_digest(code)] = (user, now + LOGIN_CODE_LIFETIME)
        return code

    def drop(self, user: str) -> None:
        """Invalidate all codes of a user."""
        with self._lock:
            self._waiting = {key: kept for key, kept in self._waiting.items() if kept[0] != user}

    def redeem(self, code: str) -> str:
        """The user of the code, which becomes invalid."""
        user = self.find_user(code)
        with self._lock:
            if self._waiting.pop(secret_digest(code), None) is None:
                raise _code_expired()
        return user

    def find_user(self, code: str) -> str:
        """The user of the code, which stays valid."""
        with self._lock:
            user, until = self._waiting.get(secret_digest(code), ("", None))
        if until is None or until <= self._now():
            raise _code_expired()
        return user


def _code_expired() -> NotAuthenticated:
    return NotAuthenticated(
        "This link was already used or has expired.", "Run `helio web` on the server to get a new one."
    )


def create_csrf_token(secret: str) -> str:
    """For the forms of the browser with this cookie. Each differs, so that compression does not reveal it."""
    pad = secrets.token_bytes(_BYTES)
    return base64.urlsafe_b64encode(pad + _xor(pad, _form_digest(secret))).decode().rstrip("=")


def is_valid_csrf_token(secret: str, shown: str) -> bool:
    try:
        data = base64.urlsafe_b64decode(shown.encode("ascii") + b"==")
    except (binascii.Error, UnicodeEncodeError, ValueError):
        return False
    if len(data) != 2 * _BYTES:
        return False
    return hmac.compare_digest(_xor(data[:_BYTES], data[_BYTES:]), _form_digest(secret))


def _form_digest(secret: str) -> bytes:
    return hmac.digest(secret.encode(), b"heliostat form", hashlib.sha256)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
