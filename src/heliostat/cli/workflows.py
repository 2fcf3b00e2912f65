"""`helio workflow`: jobs that need one another, from one file."""

from typing import Annotated, Any

import typer

from heliostat.cli.app import command_group
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
from heliostat.cli.value_format import format_duration, format_time, parse_time
from heliostat.cli.workflow_files import parse_name_value_options, read_workflow_file

workflow = command_group("Jobs that need one another, from one file.")
WorkflowArgument = Annotated[int, typer.Argument(metavar="WORKFLOW", help="Its number.", min=1)]
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
    Column("ABOUT", shrinkable=True),
)
_MOST_SHOWN = 200


@workflow.command()
def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - for standard input.")],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-P", metavar="NAME=VALUE", help="A parameter of it. May be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the jobs it would become.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end; exit with 1 if it fails.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit the workflow of a file: all its jobs or none.

    helio workflow submit train.yaml --param lr=0.1
    """
    document, params = read_workflow_file(file), parse_name_value_options(param, "--param")
    client = connect()
    if dry_run:
        _print_plan(client.workflows.preview(document, params), as_json)
        return
    made = client.workflows.submit(document, params)
    if wait:
        print_message(f"Workflow {made['id']}: {format_count(made['counts']['total'], 'job')} submitted.")
        made = client.workflows.wait(made["id"])
    if as_json:
        print_json(made)
    elif wait:
        print(f"Workflow {made['id']} ({made['name']}): {made['state']}.")
    else:
        print(f"Workflow {made['id']} ({made['name']}): {format_count(made['counts']['total'], 'job')} submitted.")
        print(f"Watch it: helio workflow show {made['id']}")
    if wait and made["state"] != "completed":
        raise typer.Exit(1)


@workflow.command("list")
def list_workflows(
    all_users: Annotated[bool, typer.Option("--all", "-a", help="Also those of projects you manage.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many.", min=1, max=200)] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List workflows, newest first."""
    found = connect().workflows.list(all_users=all_users, limit=limit)
    if as_json:
        print_json(found)
    elif not found:
        print("No workflows. Submit one: helio workflow submit train.yaml")
    else:
        print_table(_COLUMNS, (_row(one) for one in found))


@workflow.command()
def show(
    number: WorkflowArgument,
    failed: Annotated[bool, typer.Option("--failed", help="Only jobs that have failed.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show a workflow, its jobs and what they handed on."""
    found = connect().workflows.get(number)
    if as_json:
        print_json(found)
        return
    print_fields(_facts(found))
    jobs = [job for job in found["jobs"] if not failed or job["state"] in _BAD]
    print()
    print_table(_JOBS, (_job_row(job) for job in jobs[:_MOST_SHOWN]))
    if len(jobs) > _MOST_SHOWN:
        print(f"{len(jobs) - _MOST_SHOWN} more; --json prints all, --failed those that failed.")


@workflow.command()
def retry(
    number: WorkflowArgument,
    from_failed: Annotated[
        bool, typer.Option("--from-failed", help="Only what failed, and all that needs it.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a workflow again: what failed, in its place, or all of it as a new one."""
    client = connect()
    if from_failed:
        answer = client.workflows.retry(number)
        words = f"Workflow {number}: {format_count(len(answer['job_ids']), 'job')} submitted again."
    else:
        params = client.workflows.get(number)["params"]
        answer = client.workflows.submit(client.workflows.document(number), params)
        words = f"Workflow {answer['id']} ({answer['name']}) submitted, as {number} was."
    if as_json:
        print_json(answer)
    else:
        print(words)


@workflow.command()
def cancel(number: WorkflowArgument, as_json: JsonFlag = False) -> None:
    """Cancel all its jobs that are not over."""
    answer = connect().workflows.cancel(number)
    if as_json:
        print_json(answer)
    else:
        print(f"Workflow {number}: {format_count(len(answer['job_ids']), 'job')} cancelled.")


_BAD = ("failed", "timed_out", "lost", "cancelled", "refused")


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


def _row(one: dict[str, Any]) -> list[str]:
    counts = one["counts"]
    done = counts["completed"] + counts["forgiven"] + counts["skipped"]
    numbers = [str(counts["total"]), str(done), str(counts["failed"])]
    return [
        str(one["id"]),
        one["name"],
        one["user"],
        StateCell(one["state"]),
        *numbers,
        format_time(one["created_at"]),
    ]


def _facts(one: dict[str, Any]) -> list[tuple[str, str | None]]:
    counts = ", ".join(f"{count} {name}" for name, count in one["counts"].items() if count and name != "total")
    return [
        ("Workflow", f"{one['id']} ({one['name']})"),
        ("Of", f"{one['user']}, project {one['project']}"),
        ("State", StateCell(one["state"])),
        ("Submitted", format_time(one["created_at"])),
        ("Parameters", _values(one["params"]) if one["params"] else None),
        ("Jobs", f"{one['counts']['total']}: {counts}"),
    ]


def _job_row(job: dict[str, Any]) -> list[str]:
    began, ended = parse_time(job["started_at"]), parse_time(job["ended_at"])
    took = format_duration((ended - began).total_seconds()) if began and ended else "-"
    outputs = _values(job["outputs"]) if job["outputs"] else ""
    about = job["reason"] or outputs or (_values(job["values"]) if job["values"] else "-")
    return [str(job["job_id"]), job["key"], StateCell(job["state"]), took, str(job["retries"] + 1), about]
