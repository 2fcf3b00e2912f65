import socket
from dataclasses import replace

import pytest

from heliostat.config import NotificationSettings
from heliostat.errors import Invalid
from heliostat.models.notifications import NotificationChannel
from heliostat.notifications.addresses import (
    DeliveryFailed,
    check_address,
    parse_webhook_url,
    redact_address,
    resolve_address,
)

PLAIN = NotificationSettings()
ALLOWING = NotificationSettings(
    hosts=("hooks.slack.com", "*.example.org", "chat.lab:8065"),
    mail_domains=("example.org",),
    smtp_host="mail",
)
EVERYWHERE = NotificationSettings(hosts=("*", "*:8080"))


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.slack.com/services/T0/B0/x",
        "https://a.b.example.org/",
        "http://chat.lab:8065/hooks/1?x=2",
        "https://HOOKS.slack.com/x",
    ],
)
def test_what_admins_allow_is_taken_as_it_was_written(url: str) -> None:
    assert check_address(ALLOWING, NotificationChannel.WEBHOOK, f" {url} ") == url


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.org/",
        "https://example.org/",  # the star stands for something
        "https://hooks.slack.com.evil.org/",
        "https://hooks.slack.com:8443/",
        "https://chat.lab/",
        "https://evilexample.org/",
    ],
)
def test_a_host_or_port_that_nobody_allowed_is_refused_with_what_to_ask_for(url: str) -> None:
    with pytest.raises(Invalid, match="may not be sent") as refused:
        check_address(ALLOWING, NotificationChannel.CHAT, url)
    assert "hosts = [" in str(refused.value.hint)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.slack.com",
        "file:///etc/passwd",
        "ftp://hooks.slack.com/",
        "https://user:pw@hooks.slack.com/",
        "https://hooks.slack.com@evil.org/",
        "https://hooks.slack.com/#x",
        "https://hooks.slack.com/a b",
        "https://hooks.slack.com/\r\nHost: evil",
        "https://hooks.slack.com\\@evil.org/",
        "https://hooks.slack.com:0/",
        "https://hooks.slack.com:99999/",
        "https://[::1",
        "https://hööks.slack.com/",
        "https:///x",
        "https://-x/",
        "https://hooks.slack.com/" + "x" * 2000,
    ],
)
def test_what_two_programs_could_read_differently_is_no_address(url: str) -> None:
    with pytest.raises(Invalid):
        check_address(EVERYWHERE, NotificationChannel.WEBHOOK, url)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "10.0.0.1", "192.168.1.1", "172.16.0.1"),
        *("169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "localhost"),
        *("[::1]", "[::ffff:127.0.0.1]", "[fe80::1]", "[fd00::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::]"),
    ],
)
def test_private_addresses_are_refused_however_they_are_written(host: str) -> None:
    with pytest.raises(DeliveryFailed, match=r"private address|does not exist"):
        resolve_address(EVERYWHERE, parse_webhook_url(f"http://{host}/"))


def test_a_name_that_leads_inside_is_refused_unless_admins_allow_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look_up(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    target = parse_webhook_url("https://rebinding.example.org/")
    with pytest.raises(DeliveryFailed, match="private"):
        resolve_address(ALLOWING, target)
    with pytest.raises(DeliveryFailed, match="private"):
        resolve_address(replace(ALLOWING, networks=("10.2.0.0/16",)), target)
    found = resolve_address(replace(ALLOWING, networks=("10.1.0.0/16",)), target)
    assert found == (socket.AF_INET, ("10.1.2.3", 443))


def test_a_host_that_admins_no_longer_allow_is_given_up() -> None:
    with pytest.raises(DeliveryFailed) as refused:
        resolve_address(PLAIN, parse_webhook_url("https://hooks.slack.com/x"))
    assert refused.value.is_final


@pytest.mark.parametrize("address", ["ada@example.org", "ada.l+jobs@EXAMPLE.org"])
def test_mails_go_to_domains_that_admins_allow(address: str) -> None:
    assert check_address(ALLOWING, NotificationChannel.EMAIL, address) == address


@pytest.mark.parametrize(
    "address",
    [
        *(
            "",
            "ada",
            "ada@evil.org",
            "ada@example.org.evil.org",
            "a b@example.org",
            "ada@example.org, x@example.org",
        ),
        *("ada@example.org\nBcc: x@example.org", "<ada@example.org>", "-x@example.org", "a..b@example.org"),
    ],
)
def test_other_addresses_of_mail_are_refused(address: str) -> None:
    with pytest.raises(Invalid):
        check_address(ALLOWING, NotificationChannel.EMAIL, address)


def test_without_a_mail_server_no_mail_is_promised() -> None:
    with pytest.raises(Invalid, match="sends no e-mail"):
        check_address(replace(ALLOWING, smtp_host=None), NotificationChannel.EMAIL, "ada@example.org")


def test_of_an_address_only_the_host_is_shown_again() -> None:
    assert (
        redact_address(NotificationChannel.CHAT, "https://hooks.slack.com/services/T0/secret")
        == "https://hooks.slack.com/…"
    )
    assert (
        redact_address(NotificationChannel.WEBHOOK, "http://chat.lab:8065/x?token=1") == "http://chat.lab:8065/…"
    )
