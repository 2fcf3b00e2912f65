"""`helio sweep`: one command with many parameter values."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, StateCell, format_count, print_json, print_message, print_table
from heliostat.cli.value_format import format_time

if TYPE_CHECKING:
    from heliostat.client import Client, SweepHandle

sweep = command_group("Run one command with many parameter values.")
_COLUMNS = (
    Column("ID", right_aligned=True),
    Column("NAME", shrinkable=True),
    Column("USER", optional=True),
    Column("RUNS", right_aligned=True),
    Column("ARRAY", right_aligned=True),
    Column("PARAMETERS", shrinkable=True),
    Column("SUBMITTED"),
)
_MAX_SHOWN = 200


@sweep.command()
def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - for standard input.")],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all runs end; exit with the exit code of the first failure.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="As --wait, and print the output of all runs.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit the sweep in a file: all its runs, or none if one is invalid."""
    from heliostat.cli.document_files import file_error
    from heliostat.cli.submit import normalize_job_fields
    from heliostat.cli.uploads import upload_job_folders
    from heliostat.cli.workflow_files import read_document_file

    document = read_document_file(file)
    if not isinstance(document.get("job"), dict):
        raise file_error(file, "`job` is missing: fields such as `command: [python, train.py, '{lr}']`")
    client = connect()
    job = normalize_job_fields(document["job"], client.address.default_workdir())
    (document["job"],) = upload_job_folders(client, [job])
    created = client.sweeps.submit_document(document, folder=job.get("upload") or job.get("workdir"))
    report_submitted_sweep(client, created, wait, follow, as_json)


@sweep.command("list")
def list_sweeps(
    all_users: Annotated[
        bool, typer.Option("--all", "-a", help="Include sweeps of projects that you manage.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of sweeps.", min=1, max=200)] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List sweeps, newest first."""
    result = [found.data for found in connect().sweeps.list(all_users=all_users, limit=limit)]
    if as_json:
        print_json(result)
    elif not result:
        print("No sweeps. Submit one: helio run --sweep lr=0.1,0.01 -- python train.py --lr {lr}")
    else:
        print_table(_COLUMNS, (_row(item) for item in result))


@sweep.command()
def show(
    number: Annotated[int, typer.Argument(metavar="SWEEP", help="Sweep id.", min=1)],
    sort: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Sort by a parameter or metric: loss, or -acc for the largest first."),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the parameters and metrics of each run of a sweep."""
    client = connect()
    if as_csv:
        sys.stdout.write(client.sweeps.csv(number, sort).replace("\r\n", "\n"))
        return
    result = client.sweeps.get(number, sort).data
    if as_json:
        print_json(result)
        return
    names, metrics = result["parameters"], result["metrics"]
    columns = [Column("RUN", right_aligned=True), Column("JOB", right_aligned=True), Column("STATE")]
    columns += [Column(name, right_aligned=True) for name in (*names, *metrics)]
    print_table(columns, (_run_row(run, names, metrics) for run in result["runs"][:_MAX_SHOWN]))
    if len(result["runs"]) > _MAX_SHOWN:
        print(f"{len(result['runs']) - _MAX_SHOWN} more. --csv and --json print all.")


def report_submitted_sweep(
    client: "Client", submitted: "SweepHandle", wait: bool, follow: bool, as_json: bool
) -> None:
    """Prints the submitted sweep. With `wait` or `follow`, waits for the end of its runs."""
    created = submitted.data
    from heliostat.cli.submitted_job_report import wait_for_submitted_jobs

    runs = format_count(created["count"], "run")
    message = (
        f"Sweep {created['id']} ({created['name']}): {runs} submitted as array {created['array_id']}.\n"
        f"Show its runs: helio sweep show {created['id']}"
    )
    if not (wait or follow):
        print_json(created) if as_json else print(message)
        return
    if not as_json:
        print_message(message)
    reference = f"sweep:{created['id']}"
    ids = [job.id for job in client.jobs.select(reference)]
    wait_for_submitted_jobs(client, ids, reference, created, follow, as_json)


def submit_grid(
    client: "Client", job: dict[str, Any], texts: list[str], wait: bool, follow: bool, as_json: bool
) -> None:
    """Submits a sweep over the values of `--sweep lr=0.1,0.01`."""
    record, name = job.pop("record", True), job.pop("name", "sweep")
    grid = _grid(texts)
    _warn_about_unused_names(job, grid)
    created = client.sweeps.submit(job, record=record, name=name, grid=grid)
    report_submitted_sweep(client, created, wait, follow, as_json)


def _warn_about_unused_names(job: dict[str, Any], names: Iterable[str]) -> None:
    """No error: a script that the command runs may read the variable."""
    text = str([job.get(field) for field in ("command", "script", "env")])
    for name in names:
        variable = f"HELIOSTAT_PARAM_{name.upper()}"
        if f"{{{name}}}" not in text and variable not in text:
            print_message(f"The command does not contain {{{name}}}. Each run has its value only in ${variable}.")


def _grid(given: list[str]) -> dict[str, list[Any]]:
    """Parses `lr=0.1,0.01` and `seed=1..5`."""
    result: dict[str, list[Any]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        if not equals or not values or name in result:
            raise typer.BadParameter(
                f"{text!a} is not valid. Write lr=0.1,0.01 or seed=1..5, each name once.", param_hint="--sweep"
            )
        result[name] = [item for part in values.split(",") for item in _values(part.strip())]
    return result


def _values(text: str) -> list[Any]:
    first, dots, last = text.partition("..")
    if dots and first.lstrip("-").isdecimal() and last.lstrip("-").isdecimal():
        low, high = int(first), int(last)
        if not low <= high < low + 10_000:
            raise typer.BadParameter(f"{text} is not a range of 1 to 10000 numbers.", param_hint="--sweep")
        return list(range(low, high + 1))
    for kind in (int, float):
        try:
            return [kind(text)]
        except ValueError:
            continue
    return [text]


def _row(item: dict[str, Any]) -> list[str]:
    names = ", ".join(item["parameters"])
    numbers = [str(item["count"]), str(item["array_id"])]
    return [str(item["id"]), item["name"], item["user"], *numbers, names, format_time(item["created_at"])]


def _run_row(run: dict[str, Any], names: list[str], metrics: list[str]) -> list[str]:
    measured = [f"{run['metrics'][name]['value']:g}" if name in run["metrics"] else "-" for name in metrics]
    values = [str(run["values"].get(name, "-")) for name in names]
    return [str(run["index"]), str(run["job_id"]), StateCell(run["state"]), *values, *measured]
