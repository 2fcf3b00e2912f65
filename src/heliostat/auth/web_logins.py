"""Browsers: whose cookie is this, codes that open the web once, and tokens against forged requests."""

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
from heliostat.errors import Forbidden, NotAuthenticated
from heliostat.models import User, WebLogin
from heliostat.store import accounts, web_logins
from heliostat.store.database import Store

LOGIN_LIFETIME = timedelta(days=7)
IDLE_TIMEOUT = timedelta(hours=12)  # without a page of ours being asked for by a person
LOGIN_CODE_LIFETIME = timedelta(minutes=5)
_SEEN_EVERY = timedelta(minutes=5)
_MOST_CODES_EACH = 5

_BYTES = 32


@dataclass(frozen=True, slots=True)
class LoggedInBrowser:
    login: WebLogin
    user: User


class WebLogins:
    """Turns a cookie into a user. Thread-safe; a browser met shortly before costs no look at the database."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store, self._now = store, now
        self._known: Cache[str, LoggedInBrowser] = Cache(now)
        self._codes = _Codes(now)
        self.create_code, self.redeem_code, self.drop_codes = self._codes.new, self._codes.redeem, self._codes.drop

    def require_browser(self, secret: str, *, in_use: bool = True) -> LoggedInBrowser:
        """Raises NotAuthenticated when it is over. `in_use`: a person asked, so it is not idle."""
        digest = secret_digest(secret)
        browser = self._known.get(digest, lambda: self._read(digest))
        now = self._now()
        login = browser.login
        if login.ended_at is not None or login.expires_at <= now or now - login.seen_at > IDLE_TIMEOUT:
            raise not_logged_in_error()
        if not browser.user.active:
            raise Forbidden(f"The account {login.user} is deactivated.", "An admin can activate it again.")
        if in_use and now - login.seen_at > _SEEN_EVERY:
            self._store.submit_write(partial(web_logins.set_login_last_seen, login_id=login.id, at=now))
            self._known.clear()
        return browser

    def clear_cache(self) -> None:
        """Look everybody up again."""
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
    """What is stored. Plain SHA-256 is enough for what is random."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def not_logged_in_error() -> NotAuthenticated:
    return NotAuthenticated("You are not logged in, or no longer.", "Log in again.")


class _Codes:
    """Each opens the web once, within minutes. They live in memory: a restart takes them away."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[str, datetime]] = {}

    def new(self, user: str) -> str:
        code, now = generate_secret(), self._now()
        with self._lock:
            self._waiting = {key: kept for key, kept in self._waiting.items() if kept[1] > now}
            mine = [key for key, kept in self._waiting.items() if kept[0] == user]
            for key in mine[: max(0, len(mine) - _MOST_CODES_EACH + 1)]:
                del self._waiting[key]
            self._waiting[secret_digest(code)] = (user, now + LOGIN_CODE_LIFETIME)
        return code

    def drop(self, user: str) -> None:
        """None of theirs opens anything any more."""
        with self._lock:
            self._waiting = {key: kept for key, kept in self._waiting.items() if kept[0] != user}

    def redeem(self, code: str) -> str:
        """Whose it was; from now on it is nobody's."""
        with self._lock:
            user, until = self._waiting.pop(secret_digest(code), ("", None))
        if until is None or until <= self._now():
            raise NotAuthenticated(
                "This link was used already, or is too old.", "`helio web` on the server makes a new one."
            )
        return user


def create_csrf_token(secret: str) -> str:
    """For the forms of whoever holds this cookie. Each looks different, so that compression gives nothing away."""
    pad = secrets.token_bytes(_BYTES)
    return base64.urlsafe_b64encode(pad + _xor(pad, _proof(secret))).decode().rstrip("=")


def is_valid_csrf_token(secret: str, shown: str) -> bool:
    try:
        data = base64.urlsafe_b64decode(shown.encode("ascii") + b"==")
    except (binascii.Error, UnicodeEncodeError, ValueError):
        return False
    if len(data) != 2 * _BYTES:
        return False
    return hmac.compare_digest(_xor(data[:_BYTES], data[_BYTES:]), _proof(secret))


def _proof(secret: str) -> bytes:
    return hmac.digest(secret.encode(), b"heliostat form", hashlib.sha256)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
