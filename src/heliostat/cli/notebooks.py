"""`helio notebook`: starts JupyterLab; `helio notebook run`: runs a notebook as a batch job."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.job_options import job_options
from heliostat.cli.output import JsonFlag
from heliostat.cli.session_launch import launch_session
from heliostat.cli.submitted_job_report import report_submitted_job

if TYPE_CHECKING:
    pass


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

    from heliostat.cli.document_files import parse_yaml

    try:
        parameters = parse_yaml(text)
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
