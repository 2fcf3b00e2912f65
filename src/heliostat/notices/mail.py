"""One e-mail, handed to the mail server that admins have named."""

import smtplib
import socket
import ssl
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path

from heliostat.config import Settings
from heliostat.notices.failures import Undelivered
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
    except smtplib.SMTPRecipientsRefused:
        raise Undelivered("the mail server does not take mails for this address") from None
    except smtplib.SMTPResponseException as error:  # its words may hold what we said
        raise Undelivered(f"the mail server refused it ({error.smtp_code})") from None
    except (smtplib.SMTPException, OSError) as error:
        raise Undelivered(f"the mail server cannot be reached: {type(error).__name__}") from None


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
