"""Starts a session and waits until it is up."""

import time as clock
from typing import TYPE_CHECKING, Any

import typer

from heliostat.cli.browser import open_in_browser
from heliostat.cli.connection import connect
from heliostat.cli.output import print_json, print_message

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
    session: Any = client.sessions.start(app, command, **{"workdir": client.address.default_workdir(), **job})
    if not as_json:
        print_message(f"Session {session['id']} {session['state']}. Stop it: helio cancel {session['id']}")
    if not no_wait:
        session = wait_until_session_up(client, session["id"], quiet=as_json)
    _print_session(client, session, open_it, as_json)


def wait_until_session_up(client: "Client", job: int, *, quiet: bool) -> Any:
    """Prints the progress whenever it changes. Raises Exit if the session ends before it is up."""
    printed = ""
    while True:
        session = client.sessions.get(job)
        if session["is_up"]:
            return session
        if session["state"] in _TERMINAL:
            print_message(f"Session {job} {session['state']}: {session['reason'] or ''}")
            if session["log_tail"]:
                print_message(session["log_tail"])
            raise typer.Exit(1)
        progress = " ".join(filter(None, (session["step"], session["reason"], _forecast(session))))
        if progress != printed and not quiet:
            print_message(f"… {progress}")
            printed = progress
        clock.sleep(_POLL_SECONDS)


def _forecast(session: Any) -> str:
    forecast = session.get("forecast")
    return f"(starts at about {forecast['likely_at'][:16].replace('T', ' ')} UTC)" if forecast else ""


def _print_session(client: "Client", session: Any, open_it: bool, as_json: bool) -> None:
    if as_json:
        print_json(session)
    else:
        print(session["url"])
    if open_it:
        open_in_browser(client.auth.web_link(f"/sessions/{session['id']}?go=true")["url"])
