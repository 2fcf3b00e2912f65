"""Tokens that only our own pages hold, so that no other site can make a browser change something here."""

import base64
import binascii
import hashlib
import hmac
import secrets

_BYTES = 32


def new_form_token(secret: str) -> str:
    """For the forms of whoever holds this cookie. Each looks different, so that compression gives nothing away."""
    pad = secrets.token_bytes(_BYTES)
    return base64.urlsafe_b64encode(pad + _xor(pad, _proof(secret))).decode().rstrip("=")


def is_form_token(secret: str, shown: str) -> bool:
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
