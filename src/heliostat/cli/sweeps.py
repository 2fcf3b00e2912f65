"""`helio sweep`: one command over many values, and what came of each; `helio report-metric`."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, StateCell, format_count, print_json, print_table
from heliostat.cli.value_format import format_time

if TYPE_CHECKING:
    from heliostat.client import Client

sweep = command_group("One command over many values, and what came of each.")
_COLUMNS = (
    Column("ID", right_aligned=True),
    Column("NAME", shrinkable=True),
    Column("USER", optional=True),
    Column("RUNS", right_aligned=True),
    Column("ARRAY", right_aligned=True),
    Column("PARAMETERS", shrinkable=True),
    Column("SUBMITTED"),
)
_MOST_SHOWN = 200


@sweep.command()
def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - for standard input.")],
    as_json: JsonFlag = False,
) -> None:
    """Submit the sweep of a file: all its runs or none."""
    from pathlib import Path

    from heliostat.cli.workflow_files import file_error, normalize_job_template, read_document_file

    document = read_document_file(file)
    job = normalize_job_template(document.pop("job", None), Path.cwd())
    if not isinstance(job, dict):
        raise file_error(file, "it has no `job`: a set of fields, such as `command: [python, train.py, '{lr}']`")
    try:
        made = connect().sweeps.submit(job, **{str(name): value for name, value in document.items()})
    except TypeError as error:
        raise file_error(file, str(error)) from error
    print_submitted_sweep(made, as_json)


@sweep.command("list")
def list_sweeps(
    all_users: Annotated[bool, typer.Option("--all", "-a", help="Also those of projects you manage.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many.", min=1, max=200)] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List sweeps, newest first."""
    found = connect().sweeps.list(all_users=all_users, limit=limit)
    if as_json:
        print_json(found)
    elif not found:
        print("No sweeps. Submit one: helio run --sweep lr=0.1,0.01 -- python train.py --lr {lr}")
    else:
        print_table(_COLUMNS, (_row(one) for one in found))


@sweep.command()
def show(
    number: Annotated[int, typer.Argument(metavar="SWEEP", help="Its number.", min=1)],
    sort: Annotated[
        str | None, typer.Option(metavar="NAME", help="By a parameter or metric; -acc: the largest first.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what each run of a sweep got, and what it reported."""
    client = connect()
    if as_csv:
        sys.stdout.write(client.sweeps.csv(number, sort).replace("\r\n", "\n"))
        return
    found = client.sweeps.get(number, sort)
    if as_json:
        print_json(found)
        return
    names, metrics = found["parameters"], found["metrics"]
    columns = [Column("RUN", right_aligned=True), Column("JOB", right_aligned=True), Column("STATE")]
    columns += [Column(name, right_aligned=True) for name in (*names, *metrics)]
    print_table(columns, (_run_row(run, names, metrics) for run in found["runs"][:_MOST_SHOWN]))
    if len(found["runs"]) > _MOST_SHOWN:
        print(f"{len(found['runs']) - _MOST_SHOWN} more; --csv and --json print all.")


def print_submitted_sweep(made: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    runs = format_count(made["count"], "run")
    print(f"Sweep {made['id']} ({made['name']}): {runs} submitted as array {made['array_id']}.")
    print(f"See what comes of it: helio sweep show {made['id']}")


def submit_grid(client: "Client", job: dict[str, Any], texts: list[str], as_json: bool) -> None:
    """A sweep over the values that were typed: `lr=0.1,0.01`."""
    record, name = job.pop("record", True), job.pop("name", "sweep")
    print_submitted_sweep(client.sweeps.submit(job, record=record, name=name, grid=_grid(texts)), as_json)


def _grid(given: list[str]) -> dict[str, list[Any]]:
    """`lr=0.1,0.01` and `seed=1..5`."""
    found: dict[str, list[Any]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        if not equals or not values or name in found:
            raise typer.BadParameter(f"Write lr=0.1,0.01 or seed=1..5, not {text!a}.", param_hint="--sweep")
        found[name] = [one for part in values.split(",") for one in _values(part.strip())]
    return found


def _values(text: str) -> list[Any]:
    first, dots, last = text.partition("..")
    if dots and first.lstrip("-").isdecimal() and last.lstrip("-").isdecimal():
        low, high = int(first), int(last)
        if not low <= high < low + 10_000:
            raise typer.BadParameter(f"{text} is no range of at most 10000 numbers.", param_hint="--sweep")
        return list(range(low, high + 1))
    for kind in (int, float):
        try:
            return [kind(text)]
        except ValueError:
            continue
    return [text]


def _row(one: dict[str, Any]) -> list[str]:
    names = ", ".join(one["parameters"])
    numbers = [str(one["count"]), str(one["array_id"])]
    return [str(one["id"]), one["name"], one["user"], *numbers, names, format_time(one["created_at"])]


def _run_row(run: dict[str, Any], names: list[str], metrics: list[str]) -> list[str]:
    told = [f"{run['metrics'][name]['value']:g}" if name in run["metrics"] else "-" for name in metrics]
    values = [str(run["values"].get(name, "-")) for name in names]
    return [str(run["index"]), str(run["job_id"]), StateCell(run["state"]), *values, *told]


def report_metric(
    name: Annotated[str, typer.Argument(metavar="NAME", help="accuracy, loss…")],
    value: Annotated[float, typer.Argument(metavar="VALUE", help="A number.")],
    step: Annotated[int | None, typer.Option("--step", metavar="N", help="The step it belongs to.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Report a metric of the job it is called from.

    helio report-metric accuracy 0.93 --step 100

    It needs no server and no token: it writes a line to a file in the job's own folder.
    """
    from heliostat.client.sweeps import report_metric as report

    report(name, value, step)
    if as_json:
        print_json({"name": name, "value": value, "step": step})
