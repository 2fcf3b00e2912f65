"""Sends a message over its channel, and signs webhooks."""

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
    """Sends messages by e-mail, chat or webhook."""

    home: Home
    notifications: NotificationSettings

    def send(self, notification: Notification, message: NotificationMessage, at: datetime) -> None:
        """Raises DeliveryFailed."""
        if notification.channel is NotificationChannel.EMAIL:
            send_mail(self.notifications, notification.address, message, at)
            return
        body = (
            message.webhook_body
            if notification.channel is NotificationChannel.WEBHOOK
            else format_chat_body(message)
        )
        headers = {"Content-Type": "application/json", "Heliostat-Delivery": message.id}
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
    """The secret with which the receiver checks signatures. Derived from a key on disk and a salt in the database,
    so a copy of the database is not enough to forge a notification."""
    return "hns_" + hmac.new(_key(key_file), salt.encode(), hashlib.sha256).hexdigest()


def sign_body(secret: str, timestamp: int, body: bytes) -> str:
    """The signature includes the time, so that an old notification cannot be sent again later."""
    return "v1=" + hmac.new(secret.encode(), b"%d." % timestamp + body, hashlib.sha256).hexdigest()


def _key(file: Path) -> bytes:
    """Created atomically at its first use."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        draft = file.with_suffix(f".{secrets.token_hex(8)}")
        draft.touch(0o600)
        draft.write_bytes(secrets.token_bytes(32))
        try:
            os.link(draft, file)  # the first process wins
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return file.read_bytes()
