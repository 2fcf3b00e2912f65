"""Personal tokens: a secret shown once, of which only the digest is kept."""

import hashlib
import re
import secrets

PREFIX = "helio_"
_SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")


def new_token() -> tuple[str, str]:
    """A secret of 256 random bits, and its digest."""
    secret = PREFIX + secrets.token_urlsafe(32)
    return secret, digest_of(secret)


def digest_of(secret: str) -> str:
    """What is stored and looked up.

    A plain SHA-256 is enough because the secret is random, not chosen; and nobody can steer the digest of a guess,
    so the time a look-up takes says nothing about the secrets that exist.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def is_token(text: str) -> bool:
    return _SECRET.fullmatch(text) is not None
