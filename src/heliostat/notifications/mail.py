"""Sends e-mails through the configured mail server (SMTP)."""

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


def send_mail(notifications: NotificationSettings, to: str, message: NotificationMessage, at: datetime) -> None:
    """Returns once the mail server has accepted it. Raises DeliveryFailed."""
    if notifications.smtp_host is None:
        raise DeliveryFailed("no mail server is configured (smtp_host)")
    mail = _format_mail(notifications, to, message, at)
    try:
        with _connect(notifications, notifications.smtp_host) as server:
            if notifications.smtp_user is not None:
                server.login(notifications.smtp_user, _password(notifications))
            server.send_message(mail)
    except (smtplib.SMTPException, OSError, UnicodeError) as error:
        raise DeliveryFailed(_describe_error(error)) from None


def _describe_error(error: Exception) -> str:
    """Without the text of the exception where that may contain the password."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "the mail server does not accept e-mails for this address"
    if isinstance(error, smtplib.SMTPResponseException):
        is_login = isinstance(error, smtplib.SMTPAuthenticationError)
        return f"the mail server refused the {'login' if is_login else 'e-mail'} ({error.smtp_code})"
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return f"the mail server lacks a required feature: {str(error).rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        return f"the TLS connection to the mail server failed: {error.reason or 'unknown error'}"
    if isinstance(error, UnicodeError):
        return "smtp_user, its password and mail_from may contain ASCII characters only"
    return f"the mail server cannot be reached: {type(error).__name__}"


def _connect(notifications: NotificationSettings, host: str) -> smtplib.SMTP:
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


def _format_mail(
    notifications: NotificationSettings, to: str, message: NotificationMessage, at: datetime
) -> EmailMessage:
    sender = notifications.mail_from or f"heliostat@{socket.getfqdn()}"
    mail = EmailMessage()
    mail["From"] = sender
    mail["To"] = to
    mail["Subject"] = message.subject
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = f"<{message.id}@{sender.rpartition('@')[2] or 'heliostat'}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["Heliostat-Delivery"] = message.id
    mail.set_content(message.text)
    return mail
