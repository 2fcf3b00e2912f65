"""One e-mail, handed to the mail server that admins have named."""

import smtplib
import socket
import ssl
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path

from heliostat.config import NotificationSettings
from heliostat.notifications.addresses import DeliveryFailed
from heliostat.notifications.messages import NotificationMessage

TIMEOUT_SECONDS = 20.0


def send_mail(notifications: NotificationSettings, to: str, letter: NotificationMessage, at: datetime) -> None:
    """Returns once the mail server has taken it. Raises Undelivered."""
    if notifications.smtp_host is None:
        raise DeliveryFailed("admins have not said who takes our mails (smtp_host)")
    message = _message(notifications, to, letter, at)
    try:
        with _connected(notifications, notifications.smtp_host) as server:
            if notifications.smtp_user is not None:
                server.login(notifications.smtp_user, _password(notifications))
            server.send_message(message)
    except (smtplib.SMTPException, OSError, UnicodeError) as error:
        raise DeliveryFailed(_in_words(error)) from None


def _in_words(error: Exception) -> str:
    """Never what it says itself where that may hold what we said: a password, say."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "the mail server does not take mails for this address"
    if isinstance(error, smtplib.SMTPResponseException):
        is_login = isinstance(error, smtplib.SMTPAuthenticationError)
        return f"the mail server {'does not take our login' if is_login else 'refused it'} ({error.smtp_code})"
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return f"the mail server cannot do what we need: {str(error).rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        return f"the mail server cannot be trusted: {error.reason or 'TLS failed'}"
    if isinstance(error, UnicodeError):
        return "smtp_user, its password and mail_from may hold ASCII characters only"
    return f"the mail server cannot be reached: {type(error).__name__}"


def _connected(notifications: NotificationSettings, host: str) -> smtplib.SMTP:
    tls = ssl.create_default_context()
    if notifications.smtp_tls == "tls":
        return smtplib.SMTP_SSL(host, notifications.smtp_port, timeout=TIMEOUT_SECONDS, context=tls)
    server = smtplib.SMTP(host, notifications.smtp_port, timeout=TIMEOUT_SECONDS)
    if notifications.smtp_tls == "starttls":
        try:
            server.starttls(context=tls)
        except BaseException:
            server.close()
            raise
    return server


def _password(notifications: NotificationSettings) -> str:
    if notifications.smtp_password_file is None:
        return ""
    try:
        return Path(notifications.smtp_password_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise DeliveryFailed("smtp_password_file cannot be read by the server") from None


def _message(
    notifications: NotificationSettings, to: str, letter: NotificationMessage, at: datetime
) -> EmailMessage:
    sender = notifications.mail_from or f"heliostat@{socket.getfqdn()}"
    message = EmailMessage()
    message["From"] = sender
    message["To"] = to
    message["Subject"] = letter.subject
    message["Date"] = format_datetime(at)
    message["Message-ID"] = f"<{letter.id}@{sender.rpartition('@')[2] or 'heliostat'}>"
    message["Auto-Submitted"] = "auto-generated"
    message["Heliostat-Delivery"] = letter.id
    message.set_content(letter.text)
    return message
