"""How a login link reaches the browser."""

import os
import stat
import time
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from heliostat.cli import browser

LINK = "http://127.0.0.1:8470/login/link?code=SECRET&next=%2Fopen%2F1-6006%22%3E"


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    addresses: list[str] = []
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(browser, "has_browser", lambda: True)
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    return addresses


def test_the_code_is_in_a_file_of_the_user_and_not_in_the_command_line(opened: list[str]) -> None:
    browser.open_in_browser(LINK)
    (address,) = opened
    file = Path(unquote(urlsplit(address).path))
    assert address.startswith("file:///")
    assert "SECRET" not in address
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    page = file.read_text()
    assert '<form method="post" action="http://127.0.0.1:8470/login/link">' in page
    assert 'name="code" value="SECRET"' in page
    assert 'name="next" value="/open/1-6006&quot;&gt;"' in page


def test_the_file_is_removed_soon_after(
    opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "_KEEP_FILE_SECONDS", 0)
    browser.open_in_browser(LINK)
    assert opened
    while list(tmp_path.glob("heliostat-login-*")):
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("connection", "urls", "command"),
    [
        (
            "10.0.0.9 50000 10.0.0.1 22",
            ["http://127.0.0.1:8470/x", "http://127.0.0.1:8471/s/7/"],
            "-L 8470:127.0.0.1:8470 -L 8471:127.0.0.1:8471 ann@10.0.0.1",
        ),
        (
            "10.0.0.9 50000 10.0.0.1 2222",
            ["http://s7.localhost:8471/"],
            "-p 2222 -L 8471:127.0.0.1:8471 ann@10.0.0.1",
        ),
        ("10.0.0.9 50000 10.0.0.1 22", ["https://gpu.example.org/login"], None),
        ("", ["http://127.0.0.1:8470/x"], None),
    ],
)
def test_over_ssh_the_command_that_forwards_the_ports_is_printed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    connection: str,
    urls: list[str],
    command: str | None,
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", connection)
    monkeypatch.setenv("LOGNAME", "ann")
    browser.print_ssh_forwarding(*urls)
    printed = capsys.readouterr().err
    assert printed == (f"Run this on your own machine first: ssh {command}\n" if command else "")
