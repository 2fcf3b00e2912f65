"""`helio notebook`: with nothing after it JupyterLab, with `run` a notebook as a batch job."""

import math
import time as clock
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.job_options import job_options
from heliostat.cli.job_wait import report_submitted_job
from heliostat.cli.output import JsonFlag, print_json, print_message
from heliostat.cli.web import open_in_browser

if TYPE_CHECKING:
    from heliostat.client import Client

_LOOK_SECONDS = 0.5
_OVER = ("completed", "failed", "cancelled", "timed_out", "lost")

notebook = command_group("JupyterLab on the cluster; or a notebook as a job: notebook run.")
NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Do not wait until its server is up.")]
KeepIdleOption = Annotated[bool, typer.Option("--keep-idle", help="Do not end it when nobody uses it.")]
OpenOption = Annotated[bool, typer.Option("--open", help="Open it, logged in.")]
_PAIRS = ("-p", "--parameter", "-r", "--raw")


@notebook.callback(invoke_without_command=True)
@job_options("session")
def start_jupyterlab(
    ctx: typer.Context,
    *,
    job: dict[str, Any],
    keep_idle: KeepIdleOption = False,
    no_wait: NoWaitOption = False,
    open_it: OpenOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Start JupyterLab on the cluster and print its address; --open opens it.

    helio notebook --gpus 1 --time 4h --open
    """
    if ctx.invoked_subcommand is not None:
        if any(value not in (None, False, [], ()) for value in ctx.params.values()):
            raise typer.BadParameter("Write options after `run`: helio notebook run FILE --gpus 1.")
        return
    launch_session("jupyter", None, {**job, "keep_idle": keep_idle}, (no_wait, open_it, as_json))


class NameValueCommand(TyperCommand):
    """Takes `-p NAME VALUE` as it takes `-p NAME=VALUE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, join_name_value_pairs(args))


@notebook.command("run", cls=NameValueCommand)
@job_options("notebook")
def run(
    file: Annotated[str, typer.Argument(metavar="NOTEBOOK", help="analysis.ipynb")],
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="NAME VALUE", help="3, 0.1, True, None as such; else text."),
    ] = None,
    raw: Annotated[
        list[str] | None, typer.Option("--raw", "-r", metavar="NAME VALUE", help="A parameter that stays text.")
    ] = None,
    yaml: Annotated[
        list[str] | None, typer.Option("--yaml", "-y", metavar="YAML", help="'{lr: 0.1, layers: [2, 3]}'.")
    ] = None,
    *,
    job: dict[str, Any],
    kernel: Annotated[str | None, typer.Option(help="A kernel by its name: python3, ir, conda-vision.")] = None,
    session: Annotated[int | None, typer.Option(help="Take it from this running session of yours.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end; exit with its code.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print its output; exit with its code.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a notebook as a batch job, with papermill.

    helio notebook run analysis.ipynb -p lr 0.1 -p name resnet --gpus 1
    """
    if session is not None and "upload" in job:
        raise typer.BadParameter("It is taken from the session: leave --upload out.", param_hint="--upload")
    client = connect()
    values = parse_parameters(parameter or [], raw or [], yaml or [])
    submitted = client.notebooks.run(file, values, kernel=kernel, session=session, **job)
    report_submitted_job(client, submitted, wait, follow, as_json)


def launch_session(app: str, command: list[str] | None, job: dict[str, Any], how: tuple[bool, bool, bool]) -> None:
    """`how`: whether not to wait, to open it, and to print JSON."""
    no_wait, open_it, as_json = how
    client = connect()
    session: Any = client.sessions.start(app, command, **{"workdir": client.address.default_workdir(), **job})
    if not as_json:
        print_message(f"Session {session['id']} {session['state']}. Stop it: helio cancel {session['id']}")
    if not no_wait:
        session = wait_until_session_up(client, session["id"], quiet=as_json)
    _tell(client, session, open_it, as_json)


def wait_until_session_up(client: "Client", job: int, *, quiet: bool) -> Any:
    """Says what it waits for, as that changes. Raises Exit when it is over before."""
    said = ""
    while True:
        session = client.sessions.get(job)
        if session["is_up"]:
            return session
        if session["state"] in _OVER:
            print_message(f"Session {job} {session['state']}: {session['reason'] or ''}")
            if session["log_tail"]:
                print_message(session["log_tail"])
            raise typer.Exit(1)
        words = " ".join(filter(None, (session["step"], session["reason"], _forecast(session))))
        if words != said and not quiet:
            print_message(f"… {words}")
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


def join_name_value_pairs(words: Sequence[str]) -> list[str]:
    """A name has no `=` in it: what follows it is its value."""
    done: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        done.append(word)
        if word == "--":
            return done + rest
        if word in _PAIRS and len(rest) >= 2 and "=" not in rest[0]:
            done.append(f"{rest.pop(0)}={rest.pop(0)}")
    return done


def parse_parameters(typed: Sequence[str], raw: Sequence[str], yaml_texts: Sequence[str]) -> dict[str, Any]:
    """Later ones count: YAML, then typed, then raw."""
    from heliostat.models.notebooks import parse_parameter_value

    found: dict[str, Any] = {}
    for text in yaml_texts:
        found |= _mapping(text)
    found |= {name: parse_parameter_value(value) for name, value in (_pair(text, "-p") for text in typed)}
    return found | dict(_pair(text, "-r") for text in raw)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"Write a name and a value: {option} lr 0.1.", param_hint=option)
    return name, value


def _mapping(text: str) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"It is not YAML: {' '.join(str(error).split())}", param_hint="-y") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) and _is_plain(found[name]) for name in found):
        raise typer.BadParameter(
            "Write names with values that JSON knows: {lr: 0.1, layers: [2, 3]}.", param_hint="-y"
        )
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(one) for name, one in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int)
