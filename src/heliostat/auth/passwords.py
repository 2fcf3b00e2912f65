"""Password hashes (Argon2id). Verification takes the same time whether or not the account exists."""

import unicodedata
from collections.abc import Hashable

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from heliostat.auth.fair_slots import FairSlots
from heliostat.errors import Invalid

MIN_PASSWORD_LENGTH = 10
MAX_PASSWORD_LENGTH = 1024
_MAX_CONCURRENT = 2  # each hash takes 64 MiB: many logins must not use up the memory
_WAIT_SECONDS = 5.0


class Passwords:
    """Hashes and verifies passwords. Thread-safe; computes only a few hashes at the same time."""

    def __init__(
        self,
        hasher: PasswordHasher | None = None,
        *,
        max_concurrent: int = _MAX_CONCURRENT,
        wait_seconds: float = _WAIT_SECONDS,
    ) -> None:
        self._hasher = hasher or PasswordHasher()
        self._dummy = _dummy_hash(self._hasher)
        self._slots = FairSlots(max_concurrent, wait_seconds)

    def hash(self, password: str, user: str) -> str:
        """Raises Invalid for a password that is too short, too long, too simple or not text."""
        normalized = _normalize(password)
        if normalized is None:
            raise _invalid("is not valid text")
        if len(normalized) < MIN_PASSWORD_LENGTH:
            raise _invalid(f"must have at least {MIN_PASSWORD_LENGTH} characters")
        if len(normalized) > MAX_PASSWORD_LENGTH:
            raise _invalid(f"must have at most {MAX_PASSWORD_LENGTH} characters")
        if len(set(normalized)) == 1:
            raise _invalid("must not repeat one character")
        if not normalized.casefold().replace(user.casefold(), ""):
            raise _invalid("must not be the user name")
        with self._slots.slot(user):
            return self._hasher.hash(normalized)

    def verify(self, password: str, hashed: str | None, client: Hashable = None) -> bool:
        """Takes the same time for an account that has no password or does not exist (None).

        `client`: clients take turns. Raises TooManyRequests.
        """
        normalized = _normalize(password)
        if normalized is None or len(normalized) > MAX_PASSWORD_LENGTH:
            normalized, hashed = "", None
        with self._slots.slot(client):
            try:
                return self._hasher.verify(hashed or self._dummy, normalized) and hashed is not None
            except (VerificationError, InvalidHashError):
                return False


def _dummy_hash(hasher: PasswordHasher) -> str:
    """An all-zero hash with the cost parameters of a real one: no password matches, and checking takes as long."""
    costs = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    return f"$argon2id$v=19${costs}${'A' * 22}${'A' * (-(-hasher.hash_len * 8 // 6))}"


def _normalize(password: str) -> str | None:
    """NFC: keyboards differ in how they encode an accented letter."""
    if len(password) > 4 * MAX_PASSWORD_LENGTH:
        return password  # refused for its length
    try:
        password.encode()
    except UnicodeEncodeError:
        return None
    return unicodedata.normalize("NFC", password)


def _invalid(problem: str) -> Invalid:
    return Invalid(
        f"The password {problem}.", "A few unrelated words make a good password.", fields={"password": problem}
    )
