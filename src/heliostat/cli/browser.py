"""Opens an address in the browser of the user."""

import os
import sys

from heliostat.cli.output import print_message


def has_browser() -> bool:
    """Whether a browser can be opened: a terminal with a display, not a script or an SSH session."""
    has_screen = any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and has_screen and "SSH_CONNECTION" not in os.environ


def open_in_browser(address: str) -> None:
    """Prints the address if there is no browser here."""
    if has_browser():
        import webbrowser

        webbrowser.open(address)
        return
    print_message(f"Cannot open a browser here. This address logs you in once; do not share it: {address}")
