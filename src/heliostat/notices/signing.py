"""The secret of each notice, and what it signs.

A secret is made from a key on disk and a salt in the database: neither of the two alone tells it, so a copy of the
database cannot forge a notice.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path


def new_salt() -> str:
    return secrets.token_hex(16)


def secret_of(key_file: Path, salt: str) -> str:
    """What the other side checks signatures with."""
    return "hns_" + hmac.new(_key(key_file), salt.encode(), hashlib.sha256).hexdigest()


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Of the time too, so that an old notice cannot be sent again later."""
    return "v1=" + hmac.new(secret.encode(), b"%d." % timestamp + body, hashlib.sha256).hexdigest()


def _key(file: Path) -> bytes:
    """Made at its first use, whole or not at all."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        draft = file.with_suffix(f".{secrets.token_hex(8)}")
        draft.touch(0o600)
        draft.write_bytes(secrets.token_bytes(32))
        try:
            os.link(draft, file)  # who came first wins
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return file.read_bytes()
