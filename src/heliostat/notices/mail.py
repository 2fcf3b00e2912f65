"""One e-mail, handed to the mail server that admins have named."""

import smtplib
import socket
import ssl
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path

from heliostat.config import Settings
from heliostat.notices.addresses import Undelivered
from heliostat.notices.letters import Letter

SECONDS = 20.0


def send_mail(settings: Settings, to: str, letter: Letter, at: datetime) -> None:
    """Returns once the mail server has taken it. Raises Undelivered."""
    if settings.smtp_host is None:
        raise Undelivered("admins have not said who takes our mails (smtp_host)")
    message = _message(settings, to, letter, at)
    try:
        with _connected(settings, settings.smtp_host) as server:
            if settings.smtp_user is not None:
                server.login(settings.smtp_user, _password(settings))
            server.send_message(message)
    except (smtplib.SMTPException, OSError, UnicodeError) as error:
        raise Undelivered(_in_words(error)) from None


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


def _connected(settings: Settings, host: str) -> smtplib.SMTP:
    tls = ssl.create_default_context()
    if settings.smtp_tls == "tls":
        return smtplib.SMTP_SSL(host, settings.smtp_port, timeout=SECONDS, context=tls)
    server = smtplib.SMTP(host, settings.smtp_port, timeout=SECONDS)
    if settings.smtp_tls == "starttls":
        try:
            server.starttls(context=tls)
        except BaseException:
            server.close()
            raise
    return server


def _password(settings: Settings) -> str:
    if settings.smtp_password_file is None:
        return ""
    try:
        return Path(settings.smtp_password_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise Undelivered("smtp_password_file cannot be read by the server") from None


def _message(settings: Settings, to: str, letter: Letter, at: datetime) -> EmailMessage:
    sender = settings.mail_from or f"heliostat@{socket.getfqdn()}"
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
