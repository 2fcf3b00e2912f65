"""`helio department`: departments and their shares."""

from typing import Annotated

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, print_fields, print_json, print_table
from heliostat.cli.projects import (
    QUOTA_OPTION_NAMES,
    GpuHoursOption,
    NameArgument,
    QueuedGpusOption,
    RunningGpusOption,
    format_quota,
    parse_quota_changes,
)

department = command_group("Departments and their shares.")


@department.command("create")
def create_department(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Create a department."""
    created = connect().departments.create(name)
    if as_json:
        print_json(created)
    else:
        print(
            f"Department {created['name']} created. Next: helio project create NAME --department {created['name']}"
        )


@department.command("list")
def list_departments(as_json: JsonFlag = False) -> None:
    """List departments."""
    items = connect().departments.list()
    if as_json:
        print_json(items)
    else:
        rows = [[data["name"], str(data["share"]), format_quota(data["quota"])] for data in items]
        print_table([Column("DEPARTMENT"), Column("SHARE", right_aligned=True), Column("GPU QUOTA")], rows)


@department.command("set")
def change_department(
    name: NameArgument,
    share: Annotated[
        int | None, typer.Option(metavar="N", help="Share of the cluster, relative to other departments.")
    ] = None,
    running_gpus: RunningGpusOption = None,
    queued_gpus: QueuedGpusOption = None,
    gpu_hours: GpuHoursOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Change the share or quota of a department."""
    changes = ({} if share is None else {"share": share}) | parse_quota_changes(
        running_gpus, queued_gpus, gpu_hours
    )
    if not changes:
        raise typer.BadParameter(f"Nothing to change. Use --share, {QUOTA_OPTION_NAMES}.")
    data = connect().departments.change(name, **changes)
    if as_json:
        print_json(data)
        return
    facts = [
        ("department", data["name"]),
        ("share", str(data["share"])),
        ("GPU quota", format_quota(data["quota"])),
    ]
    print_fields(facts)
