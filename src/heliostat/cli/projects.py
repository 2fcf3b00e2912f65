"""`helio project`: projects, their members, shares and quotas."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import (
    Column,
    JsonFlag,
    print_fields,
    print_json,
    print_message,
    print_table,
    sanitize_text,
)
from heliostat.cli.value_format import format_time, parse_time
from heliostat.errors import Invalid

project = command_group("Projects, their members, shares and quotas.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
ProjectArgument = Annotated[str, typer.Argument(metavar="PROJECT")]
UserArgument = Annotated[str, typer.Argument(metavar="USER")]
RunningGpusOption = Annotated[
    str | None, typer.Option(metavar="N", help="Limit of GPUs in use at once; 'none' for no limit.")
]
QueuedGpusOption = Annotated[
    str | None, typer.Option(metavar="N", help="Limit of GPUs of waiting and running jobs; 'none' for no limit.")
]
GpuHoursOption = Annotated[
    str | None,
    typer.Option("--gpu-hours-per-month", metavar="N", help="Limit of GPU-hours per month; 'none' for no limit."),
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
    """List your projects. Admins see all projects."""
    items = connect().projects.list()
    if as_json:
        print_json(items)
        return
    if not items:
        print("You are not a member of a project. An admin can add you: helio project add PROJECT USER")
        return
    numbers = [Column(title, right_aligned=True) for title in ("SHARE", "DATA CLASS", "MEMBERS")]
    columns = [Column("PROJECT"), Column("DEPARTMENT"), *numbers, Column("GPU QUOTA"), Column("CLOSES")]
    print_table(columns, map(_project_row, items))


@project.command("show")
def show_project(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show a project and its members."""
    _print_project(connect().projects.get(name), as_json)


@project.command("set")
def change_project(
    name: NameArgument,
    share: Annotated[
        int | None, typer.Option(metavar="N", help="Share of its department, relative to its other projects.")
    ] = None,
    data_class: Annotated[
        int | None, typer.Option(metavar="0-3", help="Class of its data: 0 (open) to 3 (secret).")
    ] = None,
    department: Annotated[str | None, typer.Option(metavar="NAME", help="Move it to this department.")] = None,
    closes: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="It accepts no new jobs from then on: '2027-01-31 18:00', your local time; 'now', or 'none'.",
        ),
    ] = None,
    running_gpus: RunningGpusOption = None,
    queued_gpus: QueuedGpusOption = None,
    gpu_hours: GpuHoursOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Change the share, data class or quota of a project, move it, or close it."""
    changes: dict[str, Any] = {"share": share, "data_class": data_class, "department": department}
    changes = {field: value for field, value in changes.items() if value is not None}
    if closes is not None:
        changes["closes_at"] = _closing_time(closes)
    changes |= parse_quota_changes(running_gpus, queued_gpus, gpu_hours)
    if not changes:
        options = f"--share, --data-class, --department, --closes, {QUOTA_OPTION_NAMES}"
        raise typer.BadParameter(f"Nothing to change. Use {options}.")
    _print_project(connect().projects.change(name, **changes), as_json)


@project.command("add")
def add_member(
    name: ProjectArgument,
    user: UserArgument,
    role: Annotated[str, typer.Option(help="Role: member or manager.")] = "member",
    as_json: JsonFlag = False,
) -> None:
    """Add a member to a project, or change the role of a member."""
    _print_project(connect().projects.add_member(name, user, role), as_json)


@project.command("remove")
def remove_member(name: ProjectArgument, user: UserArgument, as_json: JsonFlag = False) -> None:
    """Remove a member from a project."""
    _print_project(connect().projects.remove_member(name, user), as_json)


def _project_row(data: dict[str, Any]) -> list[str]:
    numbers = (data["share"], data["data_class"], len(data["members"]))
    closes = format_time(data["closes_at"])
    return [data["name"], data["department"], *map(str, numbers), format_quota(data["quota"]), closes]


def _is_past(text: str | None) -> bool:
    at = parse_time(text)
    return at is not None and at <= datetime.now(UTC)


def _closing_time(text: str) -> str | None:
    if text.lower() == "none":
        return None
    if text.lower() == "now":
        return datetime.now(UTC).isoformat()
    try:
        return datetime.fromisoformat(text.strip()).astimezone().isoformat()
    except (ValueError, OverflowError):
        hint = "Write '2027-01-31 18:00', now, or none."
        raise Invalid(f"--closes: {sanitize_text(text)!r} is not a time.", hint) from None


def _print_project(data: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(data)
        return
    members = ", ".join(f"{member['user']} ({member['role']})" for member in data["members"])
    print_fields(
        [
            ("project", data["name"]),
            ("department", data["department"]),
            ("share", str(data["share"])),
            ("data class", str(data["data_class"])),
            ("closed since" if _is_past(data["closes_at"]) else "closes", format_time(data["closes_at"])),
            ("GPU quota", format_quota(data["quota"])),
            ("members", members or "none yet"),
        ]
    )
    if data.get("note"):
        print_message(data["note"])


def parse_quota_changes(
    running_gpus: str | None, queued_gpus: str | None, gpu_hours: str | None
) -> dict[str, Any]:
    """`{"quota": …}` with the limits to change; empty if there are none."""
    given = {"running_gpus": running_gpus, "queued_gpus": queued_gpus, "gpu_hours_per_month": gpu_hours}
    quota = {name: _limit(name, text) for name, text in given.items() if text is not None}
    return {"quota": quota} if quota else {}


def format_quota(quota: dict[str, int | None]) -> str:
    """`8 running, 64 queued, 500 h/month`: limits of GPUs and GPU-hours."""
    units = {"running_gpus": "running", "queued_gpus": "queued", "gpu_hours_per_month": "h/month"}
    limits = [f"{quota[name]} {unit}" for name, unit in units.items() if quota.get(name) is not None]
    return ", ".join(limits) or "-"


def _limit(name: str, text: str) -> int | None:
    if text.lower() == "none":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        option = f"--{name.replace('_', '-')}"
        raise Invalid(f"{option}: {text!r} is not a limit.", "Write a whole number of at least 0, or none.")
    return int(text)
