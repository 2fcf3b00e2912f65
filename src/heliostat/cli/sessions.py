"""`helio session`: start, list, show and share interactive sessions."""

from typing import Annotated, Any

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.job_options import job_options
from heliostat.cli.notebooks import KeepIdleOption, NoWaitOption, OpenOption
from heliostat.cli.output import Column, JsonFlag, print_json, print_table
from heliostat.cli.session_launch import launch_session

session = command_group("Interactive sessions: JupyterLab, VS Code, any web server.")
_APPS = ("jupyter", "terminal", "vscode", "rstudio")


@session.command("start", context_settings={"allow_interspersed_args": False})
@job_options("session")
def start_session(
    command: Annotated[list[str], typer.Argument(metavar="APP | CMD...", show_default=False)],
    *,
    job: dict[str, Any],
    keep_idle: KeepIdleOption = False,
    no_wait: NoWaitOption = False,
    open_it: OpenOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Start a session: jupyter, terminal, vscode, rstudio, or the command of a web server.

    A web server must listen on the port in $PORT:
    helio session start --gpus 1 -- sh -c 'tensorboard --logdir runs --port $PORT'
    """
    app, arguments = (command[0], None) if len(command) == 1 and command[0] in _APPS else ("custom", command)
    launch_session(app, arguments, {**job, "keep_idle": keep_idle}, (no_wait, open_it, as_json))


@session.command("list")
def list_sessions(
    everything: Annotated[bool, typer.Option("--all", help="Include sessions that have ended.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List your sessions, newest first."""
    sessions = [found.data for found in connect().sessions.list(unfinished=not everything)]
    if as_json:
        print_json(sessions)
        return
    if not sessions:
        print("No sessions. Start one: helio notebook --gpus 1")
        return
    rows = [
        [
            str(session_data["id"]),
            session_data["name"] or "",
            session_data["app"],
            "up" if session_data["is_up"] else session_data["state"],
            session_data["url"],
        ]
        for session_data in sessions
    ]
    print_table([Column(title) for title in ("ID", "NAME", "APP", "STATE", "URL")], rows)


@session.command("show")
def show_session(
    job: Annotated[int, typer.Argument(metavar="SESSION")],
    open_it: OpenOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Show a session: its state and its address."""
    from heliostat.cli.browser import open_in_browser

    client = connect()
    session_data = client.sessions.get(job).data
    if as_json:
        print_json(session_data)
    else:
        state = "up" if session_data["is_up"] else session_data["state"]
        reason = f": {session_data['reason']}" if session_data["reason"] else ""
        print(f"Session {session_data['id']} ({session_data['app']}) is {state}{reason}")
        print(session_data["log_tail"] or session_data["url"])
    if open_it:
        open_in_browser(client.auth.web_link(f"/sessions/{job}?go=true")["url"])


@session.command("share")
def share_session(
    job: Annotated[int, typer.Argument(metavar="SESSION")],
    user: Annotated[str, typer.Argument(metavar="USER")],
    revoke: Annotated[bool, typer.Option("--revoke", help="Stop sharing with this user.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Give another user access to your session. Everything they do there runs as you."""
    client = connect()
    shared = client.sessions.unshare(job, user) if revoke else client.sessions.share(job, user)
    if as_json:
        print_json({"job_id": job, "shared_with": shared})
    else:
        print(f"Session {job} is shared with {', '.join(shared)}." if shared else f"Session {job} is not shared.")
