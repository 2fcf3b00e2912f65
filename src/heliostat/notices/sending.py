"""One delivery on its way, by whichever channel; and the secret by which its notice is signed."""

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from heliostat.config import Settings
from heliostat.models.notices import Channel, Notice
from heliostat.notices.letters import Letter, chat_body
from heliostat.notices.mail import send_mail
from heliostat.notices.post import post


@dataclass(frozen=True, slots=True)
class Sender:
    """Says what was sent to whom; raises Undelivered."""

    settings: Settings

    def send(self, notice: Notice, letter: Letter, at: datetime) -> None:
        if notice.channel is Channel.EMAIL:
            send_mail(self.settings, notice.address, letter, at)
            return
        body = letter.body if notice.channel is Channel.WEBHOOK else chat_body(letter)
        headers = {"Content-Type": "application/json", "Heliostat-Delivery": letter.id}
        if notice.channel is Channel.WEBHOOK:
            seconds = int(at.timestamp())
            secret = secret_of(self.settings.home.notice_key, notice.salt)
            headers |= {
                "Heliostat-Timestamp": str(seconds),
                "Heliostat-Signature": signature(secret, seconds, body),
            }
        post(self.settings, notice.address, body, headers)


def new_salt() -> str:
    return secrets.token_hex(16)


def secret_of(key_file: Path, salt: str) -> str:
    """What the other side checks signatures with. Made from a key on disk and a salt in the database: neither of
    the two alone tells it, so a copy of the database cannot forge a notice."""
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
