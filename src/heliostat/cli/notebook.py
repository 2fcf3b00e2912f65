"""`helio notebook`: JupyterLab on the cluster, in the browser."""

import time as clock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.connect import connect
from heliostat.cli.job_options import job_options
from heliostat.cli.output import JsonFlag, print_json, say
from heliostat.cli.port import open_in_browser

if TYPE_CHECKING:
    from heliostat.client import Client

_LOOK_SECONDS = 0.5
_OVER = ("completed", "failed", "cancelled", "timed_out", "lost")

NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until its server is up.")]
KeepIdle = Annotated[bool, typer.Option("--keep-idle", help="Do not end it when nobody uses it.")]
Open = Annotated[bool, typer.Option("--open", help="Open it, logged in.")]


@job_options("session")
def lab(
    ctx: typer.Context,
    *,
    job: dict[str, Any],
    keep_idle: KeepIdle = False,
    no_wait: NoWait = False,
    open_it: Open = False,
    as_json: JsonFlag = False,
) -> None:
    """Start JupyterLab on the cluster and open it.

    helio notebook --gpus 1 --time 4h --open
    """
    if ctx.invoked_subcommand is not None:
        if any(value not in (None, False, [], ()) for value in ctx.params.values()):
            raise typer.BadParameter("Write options after `run`: helio notebook run FILE --gpus 1.")
        return
    start("jupyter", None, {**job, "keep_idle": keep_idle}, (no_wait, open_it, as_json))


def start(app: str, command: list[str] | None, job: dict[str, Any], how: tuple[bool, bool, bool]) -> None:
    """`how`: whether not to wait, to open it, and to print JSON."""
    no_wait, open_it, as_json = how
    client = connect()
    session: Any = client.start_session(app, command, **{"workdir": client.address.default_workdir(), **job})
    if not as_json:
        say(f"Session {session['id']} {session['state']}. Stop it: helio cancel {session['id']}")
    if not no_wait:
        session = wait_until_up(client, session["id"], quiet=as_json)
    _tell(client, session, open_it, as_json)


def wait_until_up(client: "Client", job: int, *, quiet: bool) -> Any:
    """Says what it waits for, as that changes. Raises Exit when it is over before."""
    said = ""
    while True:
        session = client.session(job)
        if session["is_up"]:
            return session
        if session["state"] in _OVER:
            say(f"Session {job} {session['state']}: {session['reason'] or ''}")
            if session["log_tail"]:
                say(session["log_tail"])
            raise typer.Exit(1)
        words = " ".join(filter(None, (session["step"], session["reason"], _forecast(session))))
        if words != said and not quiet:
            say(f"… {words}")
            said = words
        clock.sleep(_LOOK_SECONDS)


def _forecast(session: Any) -> str:
    forecast = session.get("forecast")
    return f"(starts at about {forecast['likely_at'][:16].replace('T', ' ')} UTC)" if forecast else ""


def _tell(client: "Client", session: Any, open_it: bool, as_json: bool) -> None:
    if as_json:
        print_json(session)
    else:
        print(session["url"])
    if open_it:
        open_in_browser(client.web_link_to(f"/sessions/{session['id']}?go=true"))
