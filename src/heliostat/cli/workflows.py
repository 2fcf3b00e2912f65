"""`helio workflow`: jobs with dependencies, from one file."""

from typing import Annotated, Any

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import (
    Column,
    JsonFlag,
    StateCell,
    format_count,
    print_fields,
    print_json,
    print_message,
    print_table,
)
from heliostat.cli.value_format import format_duration, format_time, parse_duration_option, parse_time
from heliostat.cli.workflow_files import read_workflow_file

workflow = command_group("Jobs with dependencies, from one file.")
WorkflowArgument = Annotated[int, typer.Argument(metavar="WORKFLOW", help="Workflow id.", min=1)]
_COLUMNS = (
    Column("ID", right_aligned=True),
    Column("NAME", shrinkable=True),
    Column("USER", optional=True),
    Column("STATE"),
    Column("JOBS", right_aligned=True),
    Column("DONE", right_aligned=True),
    Column("FAILED", right_aligned=True),
    Column("SUBMITTED"),
)
_JOBS = (
    Column("JOB", right_aligned=True),
    Column("KEY", shrinkable=True),
    Column("STATE"),
    Column("TIME", right_aligned=True),
    Column("TRIES", right_aligned=True, optional=True),
    Column("DETAILS", shrinkable=True),
)
_MAX_SHOWN = 200


@workflow.command()
def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - for standard input.")],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-P", metavar="NAME=VALUE", help="Set a parameter. May be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the jobs; submit nothing.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the workflow ends; exit with 1 if it fails.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit the workflow in a file: all its jobs, or none if one is invalid.

    helio workflow submit train.yaml --param lr=0.1
    """
    document, params = read_workflow_file(file), _parse_name_value_options(param, "--param")
    client = connect()
    if dry_run:
        _print_plan(client.workflows.preview(document, params), as_json)
        return
    submitted = client.workflows.submit(document, params).data
    if wait:
        print_message(
            f"Workflow {submitted['id']}: {format_count(submitted['counts']['total'], 'job')} submitted."
        )
        submitted = client.workflows.wait(submitted["id"]).data
    if as_json:
        print_json(submitted)
    elif wait:
        print(f"Workflow {submitted['id']} ({submitted['name']}): {submitted['state']}.")
    else:
        count = format_count(submitted["counts"]["total"], "job")
        print(f"Workflow {submitted['id']} ({submitted['name']}): {count} submitted.")
        print(f"Show its progress: helio workflow show {submitted['id']}")
    if wait and submitted["state"] != "completed":
        raise typer.Exit(1)


@workflow.command()
def wait(
    number: WorkflowArgument,
    timeout: Annotated[str | None, typer.Option(help="Stop waiting after this time: 30s, 10m, 2h.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Wait until a workflow ends.

    Exits with 0 if it has completed, otherwise with 1, and with 7 after --timeout.
    """
    seconds = None if timeout is None else parse_duration_option(timeout, "--timeout")
    ended = connect().workflows.wait(number, seconds).data
    if as_json:
        print_json(ended)
    else:
        print(f"Workflow {ended['id']} ({ended['name']}): {ended['state']}.")
    raise typer.Exit(0 if ended["state"] == "completed" else 1)


@workflow.command("list")
def list_workflows(
    all_users: Annotated[
        bool, typer.Option("--all", "-a", help="Include workflows of projects that you manage.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of workflows.", min=1, max=200)] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List workflows, newest first."""
    result = [found.data for found in connect().workflows.list(all_users=all_users, limit=limit)]
    if as_json:
        print_json(result)
    elif not result:
        print("No workflows. Submit one: helio workflow submit train.yaml")
    else:
        print_table(_COLUMNS, (_row(data) for data in result))


@workflow.command()
def show(
    number: WorkflowArgument,
    failed: Annotated[bool, typer.Option("--failed", help="Only jobs that have failed.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show a workflow, its jobs and their outputs."""
    result = connect().workflows.get(number).data
    if as_json:
        print_json(result)
        return
    print_fields(_facts(result))
    jobs = [job for job in result["jobs"] if not failed or job["state"] in _FAILED_STATES]
    print()
    print_table(_JOBS, (_job_row(job) for job in jobs[:_MAX_SHOWN]))
    if len(jobs) > _MAX_SHOWN:
        print(f"{len(jobs) - _MAX_SHOWN} more. --json prints all jobs, --failed only failed ones.")


@workflow.command()
def retry(
    number: WorkflowArgument,
    from_failed: Annotated[
        bool,
        typer.Option("--from-failed", help="Rerun only failed jobs and the jobs that depend on them."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a workflow again: as a new workflow, or only its failed jobs."""
    client = connect()
    if from_failed:
        response = client.workflows.retry(number).data
        message = f"Workflow {number}: {format_count(len(response['job_ids']), 'job')} submitted again."
    else:
        params = client.workflows.get(number).data["params"]
        response = client.workflows.submit(client.workflows.document(number), params).data
        message = f"Workflow {response['id']} ({response['name']}) submitted as a copy of workflow {number}."
    if as_json:
        print_json(response)
    else:
        print(message)


@workflow.command()
def cancel(number: WorkflowArgument, as_json: JsonFlag = False) -> None:
    """Cancel all jobs of a workflow that have not ended."""
    response = connect().workflows.cancel(number).data
    if as_json:
        print_json(response)
    else:
        print(f"Workflow {number}: {format_count(len(response['job_ids']), 'job')} cancelled.")


_FAILED_STATES = ("failed", "timed_out", "lost", "cancelled", "refused")


def _print_plan(plan: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(plan)
        return
    columns = (Column("KEY"), Column("VALUES", shrinkable=True), Column("NEEDS", shrinkable=True))
    print_table(columns, ([job["key"], _values(job["values"]), _few(job["needs"])] for job in plan["jobs"]))


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") or "-"


def _values(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items()) or "-"


def _row(data: dict[str, Any]) -> list[str]:
    counts = data["counts"]
    done = counts["completed"] + counts["forgiven"] + counts["skipped"]
    numbers = [str(counts["total"]), str(done), str(counts["failed"])]
    return [
        str(data["id"]),
        data["name"],
        data["user"],
        StateCell(data["state"]),
        *numbers,
        format_time(data["created_at"]),
    ]


def _facts(data: dict[str, Any]) -> list[tuple[str, str | None]]:
    counts = ", ".join(f"{count} {name}" for name, count in data["counts"].items() if count and name != "total")
    return [
        ("Workflow", f"{data['id']} ({data['name']})"),
        ("Owner", f"{data['user']}, project {data['project']}"),
        ("State", StateCell(data["state"])),
        ("Submitted", format_time(data["created_at"])),
        ("Parameters", _values(data["params"]) if data["params"] else None),
        ("Jobs", f"{data['counts']['total']}: {counts}"),
    ]


def _job_row(job: dict[str, Any]) -> list[str]:
    began, ended = parse_time(job["started_at"]), parse_time(job["ended_at"])
    took = format_duration((ended - began).total_seconds()) if began and ended else "-"
    outputs = _values(job["outputs"]) if job["outputs"] else ""
    details = job["reason"] or outputs or (_values(job["values"]) if job["values"] else "-")
    return [str(job["job_id"]), job["key"], StateCell(job["state"]), took, str(job["retries"] + 1), details]


def _parse_name_value_options(given: list[str] | None, option: str) -> dict[str, str]:
    """Parses `lr=0.1`; each name may occur once."""
    values: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or name.strip() in values:
            raise typer.BadParameter(
                f"{text!a} is not valid. Write {option} NAME=VALUE, each name once.", param_hint=option
            )
        values[name.strip()] = value
    return values
