import hashlib
import hmac
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from heliostat.config import Home, NotificationSettings
from heliostat.models.notifications import Notification, NotificationChannel
from heliostat.notifications.addresses import DeliveryFailed
from heliostat.notifications.delivery import NotificationSender, signing_secret
from heliostat.notifications.http_post import send_http_post
from heliostat.notifications.messages import NotificationMessage
from support.notification_receivers import HttpReceiver, Mailbox, running_http_receiver, running_mail_receiver

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LETTER = NotificationMessage("0b9d", "Job 1 failed (träin…)", "line one\nline two\n", b'{"id": "0b9d"}')


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with running_http_receiver() as receiver:
        yield receiver


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with running_mail_receiver() as mailbox:
        yield mailbox


def sender(
    folder: Path, receiver: HttpReceiver | None = None, mailbox: Mailbox | None = None, **changes: Any
) -> NotificationSender:
    mail = {"smtp_host": "127.0.0.1", "smtp_port": mailbox.port, "smtp_tls": "none"} if mailbox else {}
    hosts = (receiver.host,) if receiver else ()
    allowed: dict[str, Any] = {"networks": ("127.0.0.0/8",), "hosts": hosts, **mail, **changes}
    return NotificationSender(Home(folder), NotificationSettings(**allowed))


def a_notification(channel: NotificationChannel, address: str) -> Notification:
    return Notification(1, "ada", None, channel, address, ("ended",), "salt", NOW, 0)


def test_a_webhook_gets_json_that_only_its_owner_can_have_signed(receiver: HttpReceiver, tmp_path: Path) -> None:
    sender(tmp_path, receiver).send(a_notification(NotificationChannel.WEBHOOK, receiver.url), LETTER, NOW)
    (got,) = receiver.received
    assert (got.path, got.body, got.headers["Heliostat-Delivery"]) == ("/hook/secret", LETTER.webhook_body, "0b9d")
    secret = signing_secret(Home(tmp_path).notification_key, "salt")
    signed = got.headers["Heliostat-Timestamp"].encode() + b"." + got.body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert got.headers["Heliostat-Signature"] == f"v1={expected}"
    assert signing_secret(Home(tmp_path).notification_key, "other salt") != secret
    assert Home(tmp_path).notification_key.stat().st_mode & 0o777 == 0o600


def test_a_chat_gets_words_that_call_nobody(receiver: HttpReceiver, tmp_path: Path) -> None:
    letter = replace(LETTER, subject="<!channel> @all `x`", text="<!here> @channel ```\n\n-- \nfoot")
    sender(tmp_path, receiver).send(a_notification(NotificationChannel.CHAT, receiver.url), letter, NOW)
    text = receiver.received[0].json["text"]
    assert "<!" not in text
    assert "@channel" not in text
    assert "@all" not in text
    assert text.count("```") == 2
    assert "foot" not in text


@pytest.mark.parametrize(
    ("status", "words", "is_final"),
    [(500, "status 500", False), (404, "status 404", False), (410, "gone", True), (302, "redirects", False)],
)
def test_what_is_not_taken_says_why(
    receiver: HttpReceiver, tmp_path: Path, status: int, words: str, is_final: bool
) -> None:
    receiver.behaviour = status
    with pytest.raises(DeliveryFailed, match=words) as refused:
        send_http_post(sender(tmp_path, receiver).notifications, receiver.url, b"{}", {})
    assert refused.value.is_final is is_final
    assert len(receiver.received) == 1, "a redirect was followed"


@pytest.mark.parametrize("manner", ["slow", "drip"])
def test_nobody_is_waited_for_longer_than_was_said(receiver: HttpReceiver, tmp_path: Path, manner: str) -> None:
    receiver.behaviour = manner
    with pytest.raises(DeliveryFailed, match=r"did not respond within 0.5 s|is not HTTP"):
        send_http_post(sender(tmp_path, receiver).notifications, receiver.url, b"{}", {}, seconds=0.5)


def test_where_nobody_listens_the_problem_is_named(tmp_path: Path) -> None:
    with running_http_receiver() as gone:
        pass
    with pytest.raises(DeliveryFailed, match="cannot be reached"):
        send_http_post(sender(tmp_path, gone).notifications, gone.url, b"{}", {})


def test_one_who_does_not_speak_http_or_tls_is_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def greet() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(b"SSH-2.0-OpenSSH\r\n")
                    connection.recv(1000)

        thread = threading.Thread(target=greet)
        thread.start()
        notifications = NotificationSettings(networks=("127.0.0.0/8",), hosts=(f"127.0.0.1:{port}",))
        with pytest.raises(DeliveryFailed, match="is not HTTP"):
            send_http_post(notifications, f"http://127.0.0.1:{port}/", b"{}", {})
        with pytest.raises(DeliveryFailed, match=r"TLS connection to .* failed|cannot be reached"):
            send_http_post(notifications, f"https://127.0.0.1:{port}/", b"{}", {})
        thread.join(120)


def test_a_mail_arrives_with_its_words_and_an_id_of_its_own(mailbox: Mailbox, tmp_path: Path) -> None:
    sender(tmp_path, mailbox=mailbox, mail_from="heliostat@example.org").send(
        a_notification(NotificationChannel.EMAIL, "ada@example.org"), LETTER, NOW
    )
    (mail,) = mailbox.mails
    assert (mail["To"], mail["From"], mail["Subject"]) == (
        "ada@example.org",
        "heliostat@example.org",
        LETTER.subject,
    )
    assert (mail["Message-ID"], mail["Auto-Submitted"]) == ("<0b9d@example.org>", "auto-generated")
    assert "line one" in mail.get_content()


def test_a_mail_server_that_refuses_or_is_away_is_told_apart(mailbox: Mailbox, tmp_path: Path) -> None:
    mailbox.refuses = True
    with pytest.raises(DeliveryFailed, match=r"refused the e-mail .451."):
        sender(tmp_path, mailbox=mailbox).send(
            a_notification(NotificationChannel.EMAIL, "ada@example.org"), LETTER, NOW
        )
    with running_http_receiver() as gone:
        pass
    with pytest.raises(DeliveryFailed, match="cannot be reached"):
        sender(tmp_path, mailbox=mailbox, smtp_port=gone.port).send(
            a_notification(NotificationChannel.EMAIL, "ada@example.org"), LETTER, NOW
        )


def test_without_tls_where_tls_is_wanted_nothing_is_sent(mailbox: Mailbox, tmp_path: Path) -> None:
    with pytest.raises(DeliveryFailed, match="lacks a required feature: STARTTLS extension not supported"):
        sender(tmp_path, mailbox=mailbox, smtp_tls="starttls", smtp_user="helio").send(
            a_notification(NotificationChannel.EMAIL, "ada@example.org"), LETTER, NOW
        )
    assert not mailbox.mails
