"""Opens a one-time login link in the browser of the user."""

import getpass
import html
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from heliostat.cli.output import print_message

_KEEP_FILE_SECONDS = 60  # a slow browser must have read it by then
_REMOVE_LATER = """
import os, sys, time
if os.fork() == 0:
    time.sleep(float(sys.argv[2]))
    os.unlink(sys.argv[1])
"""


def has_browser() -> bool:
    """Whether a browser can be opened: a terminal with a display, not a script or an SSH session."""
    has_screen = any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and has_screen and "SSH_CONNECTION" not in os.environ


def open_in_browser(link: str) -> None:
    """Prints the link if there is no browser here."""
    if has_browser():
        open_login_link(link)
        return
    print_message(f"Cannot open a browser here. This address logs you in once; do not share it: {link}")


def print_ssh_forwarding(*urls: str) -> None:
    """In an SSH session, the command that makes these addresses of this machine reachable from the user's own."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    addresses = [urlsplit(url) for url in urls]
    ports = dict.fromkeys(address.port for address in addresses if _is_loopback(address.hostname) and address.port)
    if len(connection) != 4 or not ports:
        return
    *_, host, ssh_port = connection
    forwards = " ".join(f"-L {port}:127.0.0.1:{port}" for port in ports)
    option = "" if ssh_port == "22" else f"-p {ssh_port} "
    print_message(f"Run this on your own machine first: ssh {option}{forwards} {getpass.getuser()}@{host}")


def _is_loopback(host: str | None) -> bool:
    return host is not None and (
        host in ("localhost", "::1") or host.startswith("127.") or host.endswith(".localhost")
    )


def open_login_link(link: str) -> None:
    """Opens a file that forwards to the link: all users of a machine can read the arguments of a command."""
    import webbrowser

    file = _write_forwarding_page(link)
    webbrowser.open(file.as_uri())
    subprocess.run(
        [sys.executable, "-I", "-c", _REMOVE_LATER, str(file), str(_KEEP_FILE_SECONDS)],
        start_new_session=True,  # closing the terminal must not end it
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )


def _write_forwarding_page(link: str) -> Path:
    """A form that sends itself by POST, so that the code is in no address either. Only the user can read it."""
    address = urlsplit(link)
    inputs = "".join(
        f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
        for name, value in parse_qsl(address.query)
    )
    action = html.escape(address._replace(query="").geturl())
    page = (
        '<!doctype html><meta charset="utf-8"><title>Heliostat</title>'
        f'<form method="post" action="{action}">{inputs}<button>Log in to Heliostat</button></form>'
        "<script>document.forms[0].submit()</script>\n"
    )
    # In the home folder: browsers from Snap and Flatpak cannot read /tmp.
    folder = Path.home() if os.access(Path.home(), os.W_OK) else None
    descriptor, name = tempfile.mkstemp(prefix="heliostat-login-", suffix=".html", dir=folder)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(page)
    return Path(name)
