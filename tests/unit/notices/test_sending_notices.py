import hashlib
import hmac
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from heliostat.config import Home, Settings
from heliostat.models.notices import Channel, Notice
from heliostat.notices.addresses import Undelivered
from heliostat.notices.letters import Letter
from heliostat.notices.post import post
from heliostat.notices.sending import Sender, secret_of
from support.receivers import Mailbox, Receiver, http_receiver, mail_receiver

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LETTER = Letter("0b9d", "Job 1 has failed (träin…)", "line one\nline two\n", b'{"id": "0b9d"}')


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with mail_receiver() as mailbox:
        yield mailbox


def settings_for(folder: Path, receiver: Receiver | None = None, mailbox: Mailbox | None = None) -> Settings:
    settings = Settings(Home(folder), notice_networks=("127.0.0.0/8",))
    if receiver is not None:
        settings = replace(settings, notice_hosts=(receiver.host,))
    if mailbox is not None:
        settings = replace(settings, smtp_host="127.0.0.1", smtp_port=mailbox.port, smtp_tls="none")
    return settings


def a_notice(channel: Channel, address: str) -> Notice:
    return Notice(1, "ada", None, channel, address, ("ended",), "salt", NOW, 0)


def test_a_webhook_gets_json_that_only_its_owner_can_have_signed(receiver: Receiver, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, receiver)
    Sender(settings).send(a_notice(Channel.WEBHOOK, receiver.url), LETTER, NOW)
    (got,) = receiver.received
    assert (got.path, got.body, got.headers["Heliostat-Delivery"]) == ("/hook/secret", LETTER.body, "0b9d")
    secret = secret_of(settings.home.notice_key, "salt")
    signed = got.headers["Heliostat-Timestamp"].encode() + b"." + got.body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert got.headers["Heliostat-Signature"] == f"v1={expected}"
    assert secret_of(settings.home.notice_key, "other salt") != secret
    assert settings.home.notice_key.stat().st_mode & 0o777 == 0o600


def test_a_chat_gets_words_that_call_nobody(receiver: Receiver, tmp_path: Path) -> None:
    letter = replace(LETTER, subject="<!channel> @all `x`", text="<!here> @channel ```\n\n-- \nfoot")
    Sender(settings_for(tmp_path, receiver)).send(a_notice(Channel.CHAT, receiver.url), letter, NOW)
    text = receiver.received[0].json["text"]
    assert "<!" not in text
    assert "@channel" not in text
    assert "@all" not in text
    assert text.count("```") == 2
    assert "foot" not in text


@pytest.mark.parametrize(
    ("status", "words", "is_final"),
    [(500, "answered 500", False), (404, "answered 404", False), (410, "gone", True), (302, "redirects", False)],
)
def test_what_is_not_taken_says_why(
    receiver: Receiver, tmp_path: Path, status: int, words: str, is_final: bool
) -> None:
    receiver.manner = status
    with pytest.raises(Undelivered, match=words) as refused:
        post(settings_for(tmp_path, receiver), receiver.url, b"{}", {})
    assert refused.value.is_final is is_final
    assert len(receiver.received) == 1, "a redirect was followed"


@pytest.mark.parametrize("manner", ["slow", "drip"])
def test_nobody_is_waited_for_longer_than_was_said(receiver: Receiver, tmp_path: Path, manner: str) -> None:
    receiver.manner = manner
    with pytest.raises(Undelivered, match=r"did not answer within 0.5 s|does not speak HTTP"):
        post(settings_for(tmp_path, receiver), receiver.url, b"{}", {}, seconds=0.5)


def test_where_nobody_listens_the_problem_is_named(tmp_path: Path) -> None:
    with http_receiver() as gone:
        pass
    with pytest.raises(Undelivered, match="cannot be reached"):
        post(settings_for(tmp_path, gone), gone.url, b"{}", {})


def test_one_who_does_not_speak_http_or_tls_is_told_apart(tmp_path: Path) -> None:
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
        settings = Settings(Home(tmp_path), notice_networks=("127.0.0.0/8",), notice_hosts=(f"127.0.0.1:{port}",))
        with pytest.raises(Undelivered, match="does not speak HTTP"):
            post(settings, f"http://127.0.0.1:{port}/", b"{}", {})
        with pytest.raises(Undelivered, match=r"cannot be trusted|cannot be reached"):
            post(settings, f"https://127.0.0.1:{port}/", b"{}", {})
        thread.join(120)


def test_a_mail_arrives_with_its_words_and_an_id_of_its_own(mailbox: Mailbox, tmp_path: Path) -> None:
    settings = replace(settings_for(tmp_path, mailbox=mailbox), mail_from="heliostat@example.org")
    Sender(settings).send(a_notice(Channel.EMAIL, "ada@example.org"), LETTER, NOW)
    (mail,) = mailbox.mails
    assert (mail["To"], mail["From"], mail["Subject"]) == (
        "ada@example.org",
        "heliostat@example.org",
        LETTER.subject,
    )
    assert (mail["Message-ID"], mail["Auto-Submitted"]) == ("<0b9d@example.org>", "auto-generated")
    assert "line one" in mail.get_content()


def test_a_mail_server_that_refuses_or_is_away_is_told_apart(mailbox: Mailbox, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, mailbox=mailbox)
    mailbox.refuses = True
    with pytest.raises(Undelivered, match=r"refused it .451."):
        Sender(settings).send(a_notice(Channel.EMAIL, "ada@example.org"), LETTER, NOW)
    with http_receiver() as gone:
        pass
    with pytest.raises(Undelivered, match="cannot be reached"):
        Sender(replace(settings, smtp_port=gone.port)).send(
            a_notice(Channel.EMAIL, "ada@example.org"), LETTER, NOW
        )


def test_without_tls_where_tls_is_wanted_nothing_is_sent(mailbox: Mailbox, tmp_path: Path) -> None:
    settings = replace(settings_for(tmp_path, mailbox=mailbox), smtp_tls="starttls", smtp_user="helio")
    with pytest.raises(Undelivered, match="cannot do what we need: STARTTLS extension not supported"):
        Sender(settings).send(a_notice(Channel.EMAIL, "ada@example.org"), LETTER, NOW)
    assert not mailbox.mails
