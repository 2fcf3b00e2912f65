"""Projects, their members, and the departments they belong to."""

from typing import Annotated, Any

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, print_fields, print_json, print_message, print_table
from heliostat.errors import Invalid

project = command_group("Projects, their members, shares and quotas.")
department = command_group("Departments and their shares.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
ProjectArgument = Annotated[str, typer.Argument(metavar="PROJECT")]
UserArgument = Annotated[str, typer.Argument(metavar="USER")]
RunningGpusOption = Annotated[str | None, typer.Option(metavar="N", help="GPUs at once; 'none': no limit.")]
QueuedGpusOption = Annotated[
    str | None, typer.Option(metavar="N", help="GPUs of all jobs that are not over; 'none': no limit.")
]
GpuHoursOption = Annotated[
    str | None, typer.Option("--gpu-hours-per-month", metavar="N", help="GPU-hours a month; 'none': no limit.")
]
QUOTA_OPTION_NAMES = "--running-gpus, --queued-gpus or --gpu-hours-per-month"


@project.command("create")
def create_project(
    name: NameArgument,
    department: Annotated[str, typer.Option(help="The department it belongs to.")] = "default",
    as_json: JsonFlag = False,
) -> None:
    """Create a project."""
    _print_project(connect().projects.create(name, department), as_json)


@project.command("list")
def list_projects(as_json: JsonFlag = False) -> None:
    """List your projects; for an admin, all of them."""
    found = connect().projects.list()
    if as_json:
        print_json(found)
        return
    if not found:
        print("You are in no project. Ask an admin: helio project add PROJECT USER")
        return
    numbers = [Column(title, right_aligned=True) for title in ("SHARE", "CLASS", "MEMBERS")]
    print_table([Column("PROJECT"), Column("DEPARTMENT"), *numbers, Column("GPU QUOTA")], map(_project_row, found))


@project.command("show")
def show_project(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show a project and its members."""
    _print_project(connect().projects.get(name), as_json)


@project.command("set")
def change_project(
    name: NameArgument,
    share: Annotated[
        int | None, typer.Option(metavar="N", help="Of its department, beside other projects.")
    ] = None,
    data_class: Annotated[int | None, typer.Option(metavar="0-3", help="0: open data … 3: secret.")] = None,
    running_gpus: RunningGpusOption = None,
    queued_gpus: QueuedGpusOption = None,
    gpu_hours: GpuHoursOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Change the share, data class or quota of a project."""
    changes: dict[str, Any] = {"share": share, "data_class": data_class}
    changes = {field: value for field, value in changes.items() if value is not None}
    changes |= parse_quota_changes(running_gpus, queued_gpus, gpu_hours)
    if not changes:
        raise typer.BadParameter(f"Say what to change: --share, --data-class, {QUOTA_OPTION_NAMES}.")
    _print_project(connect().projects.change(name, **changes), as_json)


@project.command("add")
def add_member(
    name: ProjectArgument,
    user: UserArgument,
    role: Annotated[str, typer.Option(help="member or manager.")] = "member",
    as_json: JsonFlag = False,
) -> None:
    """Add a member, or change their role."""
    _print_project(connect().projects.add_member(name, user, role), as_json)


@project.command("remove")
def remove_member(name: ProjectArgument, user: UserArgument, as_json: JsonFlag = False) -> None:
    """Remove a member."""
    _print_project(connect().projects.remove_member(name, user), as_json)


@department.command("create")
def create_department(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Create a department."""
    made = connect().departments.create(name)
    if as_json:
        print_json(made)
    else:
        print(f"Department {made['name']} is there. Next: helio project create NAME --department {made['name']}")


@department.command("list")
def list_departments(as_json: JsonFlag = False) -> None:
    """List departments."""
    found = connect().departments.list()
    if as_json:
        print_json(found)
    else:
        rows = [[one["name"], str(one["share"]), format_quota(one["quota"])] for one in found]
        print_table([Column("DEPARTMENT"), Column("SHARE", right_aligned=True), Column("GPU QUOTA")], rows)


@department.command("set")
def change_department(
    name: NameArgument,
    share: Annotated[
        int | None, typer.Option(metavar="N", help="Of the cluster, beside other departments.")
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
        raise typer.BadParameter(f"Say what to change: --share, {QUOTA_OPTION_NAMES}.")
    one = connect().departments.change(name, **changes)
    if as_json:
        print_json(one)
        return
    facts = [
        ("department", one["name"]),
        ("share", str(one["share"])),
        ("GPU quota", format_quota(one["quota"])),
    ]
    print_fields(facts)


def _project_row(one: dict[str, Any]) -> list[str]:
    numbers = (one["share"], one["data_class"], len(one["members"]))
    return [one["name"], one["department"], *map(str, numbers), format_quota(one["quota"])]


def _print_project(one: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(one)
        return
    members = ", ".join(f"{member['user']} ({member['role']})" for member in one["members"])
    print_fields(
        [
            ("project", one["name"]),
            ("department", one["department"]),
            ("share", str(one["share"])),
            ("data class", str(one["data_class"])),
            ("GPU quota", format_quota(one["quota"])),
            ("members", members or "nobody yet"),
        ]
    )
    if one.get("note"):
        print_message(one["note"])


def parse_quota_changes(
    running_gpus: str | None, queued_gpus: str | None, gpu_hours: str | None
) -> dict[str, Any]:
    """`{"quota": …}` with what is to change; nothing when nothing is."""
    given = {"running_gpus": running_gpus, "queued_gpus": queued_gpus, "gpu_hours_per_month": gpu_hours}
    quota = {name: _limit(name, text) for name, text in given.items() if text is not None}
    return {"quota": quota} if quota else {}


def format_quota(quota: dict[str, int | None]) -> str:
    """`8 running, 64 queued, 500 h/month`: of GPUs."""
    units = {"running_gpus": "running", "queued_gpus": "queued", "gpu_hours_per_month": "h/month"}
    limits = [f"{quota[name]} {unit}" for name, unit in units.items() if quota.get(name) is not None]
    return ", ".join(limits) or "-"


def _limit(name: str, text: str) -> int | None:
    if text.lower() == "none":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        option = f"--{name.replace('_', '-')}"
        raise Invalid(f"{option}: {text!r} is not a limit.", "Write a whole number from 0 on, or none.")
    return int(text)
