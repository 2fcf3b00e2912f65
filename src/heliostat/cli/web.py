"""The way into the web from the terminal."""

import os
import sys
from typing import Annotated

import typer

from heliostat.cli.connect import connect
from heliostat.cli.output import JsonFlag, print_json, say
from heliostat.cli.units import clock


def web(
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Open the cluster in your browser.

    The address logs you in once and within minutes; keep it to yourself.
    """
    link = connect().auth.web_link()
    if as_json:
        print_json(link)
        return
    print(link["url"])
    say(f"It logs you in, once, until {clock(link['expires_at'])}. Keep it to yourself.")
    if not no_browser and has_browser():
        import webbrowser

        webbrowser.open(link["url"])


def has_browser() -> bool:
    """Somebody sits before a screen, rather than a script or a shell on a server."""
    has_screen = any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and has_screen and "SSH_CONNECTION" not in os.environ
