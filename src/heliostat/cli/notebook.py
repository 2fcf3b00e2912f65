"""`helio notebook`: JupyterLab on the cluster, in the browser."""

import os
import time as clock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.connect import connect
from heliostat.cli.output import JsonFlag, print_json, say
from heliostat.cli.port import open_in_browser

if TYPE_CHECKING:
    from heliostat.client import Client

_LOOK_SECONDS = 0.5
_OVER = ("completed", "failed", "cancelled", "timed_out", "lost")

Gpus = Annotated[float | None, typer.Option(help="How many GPUs, or a part of one: 0.5.")]
GpuType = Annotated[str | None, typer.Option(help="A100, RTX-3090…; see helio nodes.")]
Cpus = Annotated[int | None, typer.Option(help="How many CPU cores.")]
Memory = Annotated[str | None, typer.Option(help="16G, 512M.")]
Time = Annotated[str | None, typer.Option(help="How long: 30m, 4h, 1d.")]
Name = Annotated[str | None, typer.Option(help="A name for the session.")]
Project = Annotated[str | None, typer.Option(help="Whose share it uses.")]
Env = Annotated[
    list[str] | None, typer.Option(help="Its software: requirements.txt, @DIGEST; or K=V. May be repeated.")
]
Workdir = Annotated[str | None, typer.Option(help="Where it runs; here, on the server's machine.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until its server is up.")]
KeepIdle = Annotated[bool, typer.Option("--keep-idle", help="Do not end it when nobody uses it.")]
Open = Annotated[bool, typer.Option("--open", help="Open it, logged in.")]


def lab(
    ctx: typer.Context,
    gpus: Gpus = None,
    gpu_type: GpuType = None,
    cpus: Cpus = None,
    memory: Memory = None,
    time: Time = None,
    name: Name = None,
    project: Project = None,
    env: Env = None,
    workdir: Workdir = None,
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
    wishes = {"gpus": gpus, "gpu_type": gpu_type, "cpus": cpus, "memory": memory, "time": time, "name": name}
    start(
        "jupyter",
        None,
        {**wishes, "project": project, "env": env, "workdir": workdir, "keep_idle": keep_idle},
        (no_wait, open_it, as_json),
    )


def start(app: str, command: list[str] | None, wishes: dict[str, Any], how: tuple[bool, bool, bool]) -> None:
    """`how`: whether not to wait, to open it, and to print JSON."""
    from heliostat.cli.run import environment_of, is_software, software_of

    no_wait, open_it, as_json = how
    client = connect()
    gpus, workdir, given = wishes["gpus"], wishes["workdir"], wishes["env"] or []
    said = {
        **wishes,
        "gpus": int(gpus) if gpus is not None and gpus.is_integer() else gpus,
        "env": environment_of([one for one in given if not is_software(one)]),
        "environment": software_of([one for one in given if is_software(one)]),
        "workdir": os.path.abspath(os.path.expanduser(workdir)) if workdir else client.address.default_workdir(),
    }
    session: Any = client.sessions.start(app, command, **said)
    if not as_json:
        say(f"Session {session['id']} {session['state']}. Stop it: helio cancel {session['id']}")
    if not no_wait:
        session = wait_until_up(client, session["id"], quiet=as_json)
    _tell(client, session, open_it, as_json)


def wait_until_up(client: "Client", job: int, *, quiet: bool) -> Any:
    """Says what it waits for, as that changes. Raises Exit when it is over before."""
    said = ""
    while True:
        session = client.sessions.get(job)
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
        open_in_browser(client.auth.web_link(f"/sessions/{session['id']}?go=true")["url"])
