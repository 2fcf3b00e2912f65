"""`helio web`, `helio port`: open the web interface or a port of a running job in the browser."""

import os
import sys
from typing import Annotated

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import JsonFlag, print_json, print_message
from heliostat.cli.value_format import format_time


def web(
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Open the web interface in your browser.

    The address logs you in. It works once and expires after a few minutes; do not share it.
    """
    link = connect().auth.web_link()
    if as_json:
        print_json(link)
        return
    print(link["url"])
    print_message(
        f"This address logs you in. It works once, until {format_time(link['expires_at'])}. Do not share it."
    )
    if not no_browser and has_browser():
        import webbrowser

        webbrowser.open(link["url"])


def has_browser() -> bool:
    """Whether a browser can be opened: a terminal with a display, not a script or an SSH session."""
    has_screen = any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and has_screen and "SSH_CONNECTION" not in os.environ


def port(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    number: Annotated[int, typer.Argument(metavar="PORT", min=1024, max=65535)],
    open_it: Annotated[bool, typer.Option("--open", help="Open the address in your browser, logged in.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Open a port of a running job in your browser.

    For TensorBoard, a dashboard or any web server: helio port 12 6006. The job must be yours, and one of its
    processes must listen on that port; listening on 127.0.0.1 is enough.
    """
    client = connect()
    port_data = client.jobs.get_port(job, number)
    if as_json:
        print_json(port_data)
    else:
        print(port_data["url"])
    if open_it:
        open_in_browser(client.auth.web_link(f"/open/{job}-{number}")["url"])


def open_in_browser(address: str) -> None:
    """Prints the address if there is no browser here."""
    if has_browser():
        import webbrowser

        webbrowser.open(address)
        return
    print_message(f"Cannot open a browser here. This address logs you in once; do not share it: {address}")
