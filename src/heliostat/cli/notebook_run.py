"""`helio notebook`: with nothing after it JupyterLab, with `run` a notebook as a batch job."""

from typing import Annotated, Any

import typer

from heliostat.cli.app import noun
from heliostat.cli.connect import connect
from heliostat.cli.ending import finish
from heliostat.cli.job_options import job_options
from heliostat.cli.notebook import lab
from heliostat.cli.notebook_parameters import PairedCommand, parameters_of
from heliostat.cli.output import JsonFlag

notebook = noun("JupyterLab on the cluster; or a notebook as a job: notebook run.")
notebook.callback(invoke_without_command=True)(lab)


@notebook.command("run", cls=PairedCommand)
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
    values = parameters_of(parameter or [], raw or [], yaml or [])
    finish(client, client.run_notebook(file, values, kernel=kernel, session=session, **job), wait, follow, as_json)
