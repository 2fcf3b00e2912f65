"""`helio notebook`: starts JupyterLab; `helio notebook run`: runs a notebook as a batch job."""

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

_POLL_SECONDS = 0.5
_TERMINAL = ("completed", "failed", "cancelled", "timed_out", "lost")

notebook = command_group("Start JupyterLab, or run a notebook as a job.")
NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Do not wait until the session is up.")]
KeepIdleOption = Annotated[bool, typer.Option("--keep-idle", help="Keep the session running while it is idle.")]
OpenOption = Annotated[bool, typer.Option("--open", help="Open the session in your browser, logged in.")]
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
    """Start JupyterLab on the cluster and print its address. To run a notebook as a job: helio notebook run.

    helio notebook --gpus 1 --time 4h --open
    """
    if ctx.invoked_subcommand is not None:
        if any(value not in (None, False, [], ()) for value in ctx.params.values()):
            raise typer.BadParameter("Put the options after `run`: helio notebook run FILE --gpus 1.")
        return
    launch_session("jupyter", None, {**job, "keep_idle": keep_idle}, (no_wait, open_it, as_json))


class NameValueCommand(TyperCommand):
    """Accepts `-p NAME VALUE` in addition to `-p NAME=VALUE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, join_name_value_pairs(args))


@notebook.command("run", cls=NameValueCommand)
@job_options("notebook")
def run(
    file: Annotated[str, typer.Argument(metavar="NOTEBOOK", help="Notebook file: analysis.ipynb")],
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="NAME VALUE",
            help="Set a parameter; 3, 0.1, True and None become Python values. May be repeated.",
        ),
    ] = None,
    raw: Annotated[
        list[str] | None,
        typer.Option("--raw", "-r", metavar="NAME VALUE", help="Set a parameter to text. May be repeated."),
    ] = None,
    yaml: Annotated[
        list[str] | None,
        typer.Option(
            "--yaml", "-y", metavar="YAML", help="Set parameters from YAML: '{lr: 0.1, layers: [2, 3]}'."
        ),
    ] = None,
    *,
    job: dict[str, Any],
    kernel: Annotated[str | None, typer.Option(help="Name of the kernel: python3, ir, conda-vision.")] = None,
    session: Annotated[
        int | None, typer.Option(help="Read the notebook from this running session of yours.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job ends; exit with its exit code.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print its output until it ends; exit with its exit code.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a notebook as a batch job, with papermill.

    helio notebook run analysis.ipynb -p lr 0.1 -p name resnet --gpus 1
    """
    if session is not None and "upload" in job:
        raise typer.BadParameter("--upload cannot be used with --session.", param_hint="--upload")
    client = connect()
    values = parse_parameters(parameter or [], raw or [], yaml or [])
    submitted = client.notebooks.run(file, values, kernel=kernel, session=session, **job)
    report_submitted_job(client, submitted, wait, follow, as_json)


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


def join_name_value_pairs(words: Sequence[str]) -> list[str]:
    """`-p lr 0.1` becomes `-p lr=0.1`: a name without `=` is followed by its value."""
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
    """Parameters by name. For a name that occurs twice, raw wins over typed, and typed over YAML."""
    from heliostat.models.notebooks import parse_parameter_value

    parameters: dict[str, Any] = {}
    for text in yaml_texts:
        parameters |= _mapping(text)
    parameters |= {name: parse_parameter_value(value) for name, value in (_pair(text, "-p") for text in typed)}
    return parameters | dict(_pair(text, "-r") for text in raw)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"Write a name and a value: {option} lr 0.1.", param_hint=option)
    return name, value


def _mapping(text: str) -> dict[str, Any]:
    import yaml

    try:
        parameters = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"It is not YAML: {' '.join(str(error).split())}", param_hint="-y") from error
    if not isinstance(parameters, dict) or not all(
        isinstance(name, str) and _is_json(parameters[name]) for name in parameters
    ):
        raise typer.BadParameter(
            "Write names with values that JSON supports: {lr: 0.1, layers: [2, 3]}.", param_hint="-y"
        )
    return parameters


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_json(member) for name, member in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int)
