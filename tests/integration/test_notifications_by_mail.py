"""Mails through a real mail server that wants STARTTLS and a login; the password is told to nobody else."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from heliostat.client import Client
from integration.running_server import RunningServer, wait_for
from support.certificates import CertificateAuthority, certificates_skip_reason, create_certificate_authority
from support.notification_receivers import Mailbox, running_mail_receiver

pytestmark = pytest.mark.skipif(certificates_skip_reason() is not None, reason=certificates_skip_reason() or "")
PASSWORD = "correct-horse-c0ffee"
SETTINGS = """
server.node_name = "here"
notifications.mail_domains = ["example.org"]
notifications.pause_seconds = 1
notifications.smtp_host = "localhost"
notifications.smtp_port = {port}
notifications.smtp_user = "heliostat"
notifications.smtp_password_file = "{file}"
notifications.mail_from = "heliostat@example.org"
"""


@dataclass(frozen=True)
class Post:
    """A server of ours, and the mail server it speaks to."""

    server: RunningServer
    mailbox: Mailbox
    password: Path

    def say_password(self, text: str) -> None:
        self.password.write_text(text)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return create_certificate_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def post(authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Post]:
    file = tmp_path_factory.mktemp("secret") / "smtp.password"
    file.touch(0o600)
    with running_mail_receiver(authority.server_context, PASSWORD) as mailbox:
        environment = {**os.environ, "SSL_CERT_FILE": str(authority.certificate_file)}
        server = RunningServer(SETTINGS.format(port=mailbox.port, file=file), environment)
        yield Post(server, mailbox, file)
        server.remove()


@pytest.fixture
def client(post: Post) -> Iterator[Client]:
    post.say_password(f"{PASSWORD}\n")
    with Client(home=post.server.home) as client:
        yield client
        for one in client.notifications.list():
            client.notifications.remove(one["id"])


def said_anywhere(server: RunningServer, secret: str) -> list[str]:
    """Files of the server, its log among them, in which it can be read."""
    files = [path for path in server.folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode)]
    return [str(path) for path in files if secret.encode() in path.read_bytes()]


def test_a_mail_is_sent_over_tls_after_a_login(post: Post, client: Client) -> None:
    client.notifications.add("email", "ada@example.org", "ended")
    job = client.submit("exit 3", cpus=1, memory=64)
    wait_for(
        lambda: post.mailbox.mails, "the mail is there", lambda: (client.notifications.list(), post.server.log)
    )
    (mail,) = post.mailbox.mails
    assert (mail["To"], mail["From"]) == ("ada@example.org", "heliostat@example.org")
    assert f"Job {job.id}" in mail["Subject"]
    assert set(post.mailbox.logins) == {f"heliostat\0{PASSWORD}"}
    assert post.mailbox.unencrypted == []
    assert said_anywhere(post.server, PASSWORD) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("wrong-battery-staple", "the mail server refused the login (535)"),
        ("schlüssel-wörter", "smtp_user, its password and mail_from may contain ASCII characters only"),
    ],
)
def test_a_login_that_fails_is_told_without_the_password(
    post: Post, client: Client, wrong: str, words: str
) -> None:
    post.say_password(wrong)
    number = client.notifications.add("email", "ada@example.org", "ended")["id"]
    assert client.notifications.test(number) == words
    job = client.submit("true", cpus=1, memory=64)
    job.wait(60)
    wait_for(lambda: client.notifications.list()[0]["problem"], "its delivery has failed", lambda: post.server.log)
    assert client.notifications.list()[0]["problem"] == words
    assert said_anywhere(post.server, wrong) == []


def test_a_mail_server_that_nobody_we_trust_vouches_for_learns_nothing(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    file = tmp_path / "smtp.password"
    file.write_text(PASSWORD)
    with running_mail_receiver(authority.server_context, PASSWORD) as mailbox:
        environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
        server = RunningServer(SETTINGS.format(port=mailbox.port, file=file), environment)
        try:
            with Client(home=server.home) as client:
                number = client.notifications.add("email", "ada@example.org")["id"]
                problem = client.notifications.test(number) or ""
        finally:
            server.remove()
        assert problem.startswith("the TLS connection to the mail server failed: "), problem
        assert (mailbox.mails, mailbox.logins) == ([], [])
