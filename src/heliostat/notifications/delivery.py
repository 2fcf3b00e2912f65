"""One delivery on its way, by whichever channel; and the secret by which its notification is signed."""

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from heliostat.config import Home, NotificationSettings
from heliostat.models.notifications import Notification, NotificationChannel
from heliostat.notifications.http_post import send_http_post
from heliostat.notifications.mail import send_mail
from heliostat.notifications.messages import NotificationMessage, format_chat_body


@dataclass(frozen=True, slots=True)
class NotificationSender:
    """Says what was sent to whom; raises Undelivered."""

    home: Home
    notifications: NotificationSettings

    def send(self, notification: Notification, letter: NotificationMessage, at: datetime) -> None:
        if notification.channel is NotificationChannel.EMAIL:
            send_mail(self.notifications, notification.address, letter, at)
            return
        body = (
            letter.webhook_body
            if notification.channel is NotificationChannel.WEBHOOK
            else format_chat_body(letter)
        )
        headers = {"Content-Type": "application/json", "Heliostat-Delivery": letter.id}
        if notification.channel is NotificationChannel.WEBHOOK:
            seconds = int(at.timestamp())
            secret = signing_secret(self.home.notification_key, notification.salt)
            headers |= {
                "Heliostat-Timestamp": str(seconds),
                "Heliostat-Signature": sign_body(secret, seconds, body),
            }
        send_http_post(self.notifications, notification.address, body, headers)


def new_salt() -> str:
    return secrets.token_hex(16)


def signing_secret(key_file: Path, salt: str) -> str:
    """What the other side checks signatures with. Made from a key on disk and a salt in the database: neither of
    the two alone tells it, so a copy of the database cannot forge a notification."""
    return "hns_" + hmac.new(_key(key_file), salt.encode(), hashlib.sha256).hexdigest()


def sign_body(secret: str, timestamp: int, body: bytes) -> str:
    """Of the time too, so that an old notification cannot be sent again later."""
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
