"""`helio web`: opens the web interface in the browser."""

from typing import Annotated

import typer

from heliostat.cli.browser import has_browser, open_login_link, print_ssh_forwarding
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
    print_ssh_forwarding(link["url"])
    if not no_browser and has_browser():
        open_login_link(link["url"])
