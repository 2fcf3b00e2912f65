"""Starts a session and waits until it is up."""

import time as clock
from typing import TYPE_CHECKING, Any

import typer

from heliostat.cli.browser import has_browser, open_in_browser, print_ssh_forwarding
from heliostat.cli.connection import connect
from heliostat.cli.output import print_json, print_message
from heliostat.cli.value_format import format_time
from heliostat.cli.wait_display import WaitDisplay
from heliostat.errors import Forbidden

if TYPE_CHECKING:
    from heliostat.client import Client

_POLL_SECONDS = 0.5
_TERMINAL = ("completed", "failed", "cancelled", "timed_out", "lost")


def launch_session(
    app: str, command: list[str] | None, job: dict[str, Any], flags: tuple[bool, bool, bool]
) -> None:
    """`flags`: no_wait, open_it, as_json."""
    no_wait, open_it, as_json = flags
    client = connect()
    options: Any = {"workdir": client.address.default_workdir(), **job}
    session: Any = client.sessions.start(app, command, **options).data
    if not as_json:
        print_message(f"Session {session['id']} {session['state']}. Stop it: helio cancel {session['id']}")
    if not no_wait:
        session = wait_until_session_up(client, session["id"], quiet=as_json)
    _print_session(client, session, open_it, as_json)


def wait_until_session_up(client: "Client", job: int, *, quiet: bool) -> Any:
    """Shows the progress. Raises Exit if the session ends before it is up."""
    with WaitDisplay() as display:
        while not (session := client.sessions.get(job).data)["is_up"] and session["state"] not in _TERMINAL:
            if not quiet:
                display.show(f"Session {job} {session['state']}", session["step"], session.get("forecast"))
            clock.sleep(_POLL_SECONDS)
    if session["is_up"]:
        return session
    print_message(f"Session {job} {session['state']}: {session['reason'] or ''}")
    if session["log_tail"]:
        print_message(session["log_tail"])
    raise typer.Exit(1)


def _print_session(client: "Client", session: Any, open_it: bool, as_json: bool) -> None:
    """With an address that logs a browser in: that of the session asks for a login."""
    if as_json:
        print_json(session)
    else:
        print(session["url"], flush=True)
        _print_login_link(client, session)
    if open_it and (as_json or has_browser()):
        link = _create_login_link(client, session)
        open_in_browser(link["url"] if link else session["url"])


def _print_login_link(client: "Client", session: Any) -> None:
    if link := _create_login_link(client, session):
        until = format_time(link["expires_at"])
        print_message(f"Log in and open it with this address. It works once, until {until}; do not share it:")
        print_message(f"  {link['url']}")
        print_ssh_forwarding(link["url"], session["url"])
    else:
        print_message("It asks for a login: your token may not create an address that logs a browser in.")


def _create_login_link(client: "Client", session: Any) -> Any:
    """None: the scope of the token does not allow it."""
    try:
        return client.auth.web_link(f"/sessions/{session['id']}?go=true")
    except Forbidden:
        return None
