"""Passwords: Argon2id, with the same work done whether or not the account exists."""

import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from heliostat.errors import Invalid, TooManyRequests

MIN_PASSWORD_LENGTH = 10
MAX_PASSWORD_LENGTH = 1024
_MOST_AT_ONCE = 2  # each hash takes 64 MiB: a crowd at the door must not take the memory of the machine
_WAIT_SECONDS = 5.0


class Passwords:
    """Hashes and verifies. Threads may share it: it works out few hashes at the same time."""

    def __init__(
        self,
        hasher: PasswordHasher | None = None,
        *,
        most_at_once: int = _MOST_AT_ONCE,
        wait_seconds: float = _WAIT_SECONDS,
    ) -> None:
        self._hasher = hasher or PasswordHasher()
        self._dummy = _hash_of_nobody(self._hasher)
        self._free, self._wait_seconds = threading.BoundedSemaphore(most_at_once), wait_seconds

    def hash(self, password: str) -> str:
        """Raises Invalid for a password that is too short, too long or not text."""
        readable = _readable(password)
        if readable is None:
            raise _invalid("is not readable text")
        if len(readable) < MIN_PASSWORD_LENGTH:
            raise _invalid(f"must have at least {MIN_PASSWORD_LENGTH} characters")
        if len(readable) > MAX_PASSWORD_LENGTH:
            raise _invalid(f"must have at most {MAX_PASSWORD_LENGTH} characters")
        with self.hashing_slot():
            return self._hasher.hash(readable)

    def verify(self, password: str, hashed: str | None) -> bool:
        """Takes the same time for an account that has no password or does not exist (None)."""
        readable = _readable(password)
        if readable is None or len(readable) > MAX_PASSWORD_LENGTH:
            readable, hashed = "", None
        with self.hashing_slot():
            try:
                return self._hasher.verify(hashed or self._dummy, readable) and hashed is not None
            except (VerificationError, InvalidHashError):
                return False

    @contextmanager
    def hashing_slot(self) -> Iterator[None]:
        """To work out one hash. Raises TooManyRequests when others take too long."""
        if not self._free.acquire(timeout=self._wait_seconds):
            raise TooManyRequests("Too many people are logging in at this moment.", "Try again in a few seconds.")
        try:
            yield
        finally:
            self._free.release()


def _hash_of_nobody(hasher: PasswordHasher) -> str:
    """An all-zero hash with the costs of a real one: nobody knows its password, and it takes as long to try."""
    costs = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    return f"$argon2id$v=19${costs}${'A' * 22}${'A' * (-(-hasher.hash_len * 8 // 6))}"


def _readable(password: str) -> str | None:
    """One spelling for what looks the same: keyboards differ in how they send an accented letter."""
    if len(password) > 4 * MAX_PASSWORD_LENGTH:
        return password  # refused for its length; not worth the work
    try:
        password.encode()
    except UnicodeEncodeError:
        return None
    return unicodedata.normalize("NFC", password)


def _invalid(what: str) -> Invalid:
    return Invalid(f"The password {what}.", "A few unrelated words make a good one.", fields={"password": what})
