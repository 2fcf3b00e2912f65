"""Passwords: Argon2id, with the same work done whether or not the account exists."""

import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from heliostat.errors import Invalid, TooManyRequests

MIN_LENGTH = 10
MAX_LENGTH = 1024

_hasher = PasswordHasher()
# An all-zero hash under the parameters of a real one: nobody knows its password, and it costs the same to try.
_DUMMY = (
    f"$argon2id$v=19$m={_hasher.memory_cost},t={_hasher.time_cost},p={_hasher.parallelism}${'A' * 22}${'A' * 43}"
)
# Each hash takes 64 MiB: a crowd at the door must not take the memory of the machine.
_seats = threading.BoundedSemaphore(2)
_PATIENCE_SECONDS = 5.0


def hash_password(password: str) -> str:
    """Raises Invalid for a password that is too short, too long or not text."""
    readable = _readable(password)
    if readable is None:
        raise _invalid("is not readable text")
    if len(readable) < MIN_LENGTH:
        raise _invalid(f"must have at least {MIN_LENGTH} characters")
    if len(readable) > MAX_LENGTH:
        raise _invalid(f"must have at most {MAX_LENGTH} characters")
    with _seat():
        return _hasher.hash(readable)


def verify_password(password: str, hashed: str | None) -> bool:
    """Takes the same time for an account that has no password or does not exist (None)."""
    readable = _readable(password)
    if readable is None or len(readable) > MAX_LENGTH:
        readable, hashed = "", None
    with _seat():
        try:
            return _hasher.verify(hashed or _DUMMY, readable) and hashed is not None
        except (VerificationError, InvalidHashError):
            return False


def _readable(password: str) -> str | None:
    """One spelling for what looks the same: keyboards differ in how they send an accented letter."""
    if len(password) > 4 * MAX_LENGTH:
        return password  # refused for its length; not worth the work
    try:
        password.encode()
    except UnicodeEncodeError:
        return None
    return unicodedata.normalize("NFC", password)


def _invalid(what: str) -> Invalid:
    return Invalid(f"The password {what}.", "A few unrelated words make a good one.", fields={"password": what})


@contextmanager
def _seat() -> Iterator[None]:
    if not _seats.acquire(timeout=_PATIENCE_SECONDS):
        raise TooManyRequests("Too many people are logging in at this moment.", "Try again in a few seconds.")
    try:
        yield
    finally:
        _seats.release()
