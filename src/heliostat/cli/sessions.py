"""`helio session`: start, list and show sessions."""

from typing import Annotated, Any

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.job_options import job_options
from heliostat.cli.notebooks import KeepIdleOption, NoWaitOption, OpenOption, launch_session
from heliostat.cli.output import Column, JsonFlag, print_json, print_table

session = command_group("Interactive sessions: JupyterLab, or a web server of your own.")
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
    """Start a session: jupyter, terminal, vscode, rstudio, or any web server by its command.

    helio session start --gpus 1 -- sh -c 'tensorboard --logdir runs --port $PORT'
    """
    app, words = (command[0], None) if len(command) == 1 and command[0] in _APPS else ("custom", command)
    launch_session(app, words, {**job, "keep_idle": keep_idle}, (no_wait, open_it, as_json))


@session.command("list")
def list_sessions(
    everything: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List your sessions, newest first."""
    found = connect().sessions.list(unfinished=not everything)
    if as_json:
        print_json(found)
        return
    if not found:
        print("No sessions. Start one: helio notebook --gpus 1")
        return
    rows = [
        [str(one["id"]), one["name"] or "", one["app"], "up" if one["is_up"] else one["state"], one["url"]]
        for one in found
    ]
    print_table([Column(title) for title in ("ID", "NAME", "RUNS", "STATE", "ADDRESS")], rows)


@session.command("show")
def show_session(
    job: Annotated[int, typer.Argument(metavar="SESSION")],
    open_it: OpenOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Show one session: whether its server is up, and where."""
    from heliostat.cli.web import open_in_browser

    client = connect()
    one = client.sessions.get(job)
    if as_json:
        print_json(one)
    else:
        state = "up" if one["is_up"] else one["state"]
        print(f"Session {one['id']} ({one['app']}) is {state}{': ' + one['reason'] if one['reason'] else ''}")
        print(one["log_tail"] or one["url"])
    if open_it:
        open_in_browser(client.auth.web_link(f"/sessions/{job}?go=true")["url"])


@session.command("share")
def share_session(
    job: Annotated[int, typer.Argument(metavar="SESSION")],
    user: Annotated[str, typer.Argument(metavar="USER")],
    revoke: Annotated[bool, typer.Option("--revoke", help="Take it back.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Let somebody into a session of yours, to act there as you."""
    client = connect()
    shared = client.sessions.unshare(job, user) if revoke else client.sessions.share(job, user)
    if as_json:
        print_json({"job_id": job, "shared_with": shared})
    else:
        print(f"Session {job} is shared with {', '.join(shared) or 'nobody'}.")
