"""`helio web`, `helio port`: the cluster, or a port of a running job, in the browser."""

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
    """Open the cluster in your browser.

    The address logs you in once and within minutes; keep it to yourself.
    """
    link = connect().auth.web_link()
    if as_json:
        print_json(link)
        return
    print(link["url"])
    print_message(f"It logs you in, once, until {format_time(link['expires_at'])}. Keep it to yourself.")
    if not no_browser and has_browser():
        import webbrowser

        webbrowser.open(link["url"])


def has_browser() -> bool:
    """Somebody sits before a screen, rather than a script or a shell on a server."""
    has_screen = any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and has_screen and "SSH_CONNECTION" not in os.environ


def port(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    number: Annotated[int, typer.Argument(metavar="PORT", min=1024, max=65535)],
    open_it: Annotated[bool, typer.Option("--open", help="Open it, logged in.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Open a port of a running job in your browser.

    TensorBoard, a dashboard, any web server: helio port 12 6006. The job must be yours, and one of its
    processes must listen there; 127.0.0.1 is enough.
    """
    client = connect()
    found = client.jobs.get_port(job, number)
    if as_json:
        print_json(found)
    else:
        print(found["url"])
    if open_it:
        open_in_browser(client.auth.web_link(f"/open/{job}-{number}")["url"])


def open_in_browser(address: str) -> None:
    """Or, where there is no screen, say where to go."""
    if has_browser():
        import webbrowser

        webbrowser.open(address)
        return
    print_message(f"No browser here. This address logs you in, once; keep it to yourself: {address}")
