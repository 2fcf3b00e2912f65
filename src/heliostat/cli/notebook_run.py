"""`helio notebook`: with nothing after it JupyterLab, with `run` a notebook as a batch job."""

import os
from typing import Annotated, Any

import typer

from heliostat.cli.app import noun
from heliostat.cli.connect import connect
from heliostat.cli.notebook import Cpus, Env, Gpus, GpuType, Memory, Project, lab
from heliostat.cli.notebook_parameters import PairedCommand, parameters_of
from heliostat.cli.output import JsonFlag

notebook = noun("JupyterLab on the cluster; or a notebook as a job: notebook run.")
notebook.callback(invoke_without_command=True)(lab)


@notebook.command("run", cls=PairedCommand)
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
    gpus: Gpus = None,
    gpu_type: GpuType = None,
    cpus: Cpus = None,
    memory: Memory = None,
    time: Annotated[str | None, typer.Option(help="How long at most: 30m, 4h, 1d.")] = None,
    name: Annotated[str | None, typer.Option(help="A name; otherwise that of the notebook.")] = None,
    project: Project = None,
    env: Env = None,
    kernel: Annotated[str | None, typer.Option(help="A kernel by its name: python3, ir, conda-vision.")] = None,
    workdir: Annotated[str | None, typer.Option(help="Where its kernel runs; here, beside the notebook.")] = None,
    upload: Annotated[str | None, typer.Option(help="Send this folder, run in a copy of it.")] = None,
    session: Annotated[int | None, typer.Option(help="Take it from this running session of yours.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end; exit with its code.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print its output; exit with its code.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a notebook as a batch job, with papermill.

    helio notebook run analysis.ipynb -p lr 0.1 -p name resnet --gpus 1
    """
    from heliostat.cli.run import environment_of, finish, is_software, software_of

    if session is not None and upload is not None:
        raise typer.BadParameter("It is taken from the session: leave --upload out.", param_hint="--upload")
    given, client = env or [], connect()
    options: dict[str, Any] = {
        "gpus": int(gpus) if gpus is not None and gpus.is_integer() else gpus,
        "gpu_type": gpu_type,
        "cpus": cpus,
        "memory": memory,
        "time": time,
        "name": name,
        "project": project,
        "env": environment_of([one for one in given if not is_software(one)]),
        "environment": software_of([one for one in given if is_software(one)]),
        "workdir": os.path.abspath(os.path.expanduser(workdir)) if workdir else None,
        "upload": upload,
    }
    values = parameters_of(parameter or [], raw or [], yaml or [])
    job = client.notebooks.run(file, values, kernel=kernel, session=session, **options)
    finish(client, job, wait, follow, as_json)
