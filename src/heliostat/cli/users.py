"""Accounts, and the log of who did what."""

import json
from typing import Annotated, Any

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, print_fields, print_json, print_table
from heliostat.cli.projects import (
    QUOTA_OPTION_NAMES,
    GpuHoursOption,
    QueuedGpusOption,
    RunningGpusOption,
    format_quota,
    parse_quota_changes,
)
from heliostat.cli.value_format import format_time

user = command_group("Accounts.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
RoleOption = Annotated[str | None, typer.Option(help="user or admin.")]
PasswordStdinOption = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]


@user.command()
def create(
    name: NameArgument,
    role: RoleOption = None,
    unix_user: Annotated[str | None, typer.Option(help="Whom their jobs run as.")] = None,
    project: Annotated[list[str] | None, typer.Option(help="Their projects. May be repeated.")] = None,
    password_stdin: PasswordStdinOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Create an account."""
    from heliostat.cli.login import prompt_password

    password = prompt_password("Password", from_stdin=True) if password_stdin else None
    made = connect().users.create(name, role=role, unix_user=unix_user, password=password, projects=project)
    _print_user(made, as_json)


@user.command("list")
def list_users(as_json: JsonFlag = False) -> None:
    """List accounts."""
    found = connect().users.list()
    if as_json:
        print_json(found)
        return
    columns = ("NAME", "ROLE", "UNIX USER", "ACTIVE", "PROJECTS", "GPU QUOTA")
    print_table([Column(title) for title in columns], (_row(one) for one in found))


@user.command()
def show(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show one account."""
    _print_user(connect().users.get(name), as_json)


@user.command()
def password(name: NameArgument, password_stdin: PasswordStdinOption = False, as_json: JsonFlag = False) -> None:
    """Set a password; for your own, the present one is asked for if there is one."""
    from heliostat.cli.login import flatten_caller, prompt_password

    client = connect()
    mine = flatten_caller(client.auth.whoami())
    needs_current = mine["name"] == name and mine.get("has_password") and not client.address.is_local_socket
    current = prompt_password("Present password", from_stdin=password_stdin) if needs_current else None
    new = prompt_password("New password", from_stdin=password_stdin, twice=True)
    client.users.set_password(name, new, current)
    if as_json:
        print_json({"name": name, "password": "set"})
    else:
        print(f"The password of {name} is set.")


@user.command("set")
def change_user(
    name: NameArgument,
    role: RoleOption = None,
    active: Annotated[bool | None, typer.Option("--active/--inactive", help="May they come in?")] = None,
    unix_user: Annotated[str | None, typer.Option(help="Whom their jobs run as; '' for nobody.")] = None,
    running_gpus: RunningGpusOption = None,
    queued_gpus: QueuedGpusOption = None,
    gpu_hours: GpuHoursOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Change an account."""
    changes: dict[str, Any] = {"role": role, "active": active}
    changes = {field: value for field, value in changes.items() if value is not None}
    if unix_user is not None:
        changes["unix_user"] = unix_user or None
    changes |= parse_quota_changes(running_gpus, queued_gpus, gpu_hours)
    if not changes:
        raise typer.BadParameter(
            f"Say what to change: --role, --active, --inactive, --unix-user, {QUOTA_OPTION_NAMES}."
        )
    _print_user(connect().users.change(name, **changes), as_json)


def audit(
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 50,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Only what this user did.")] = None,
    text: Annotated[str | None, typer.Option(help="Only with this in the action or target: node.drain.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show who did what."""
    entries = list(connect().auth.audit_log(limit, user, text))
    if as_json:
        print_json(entries)
        return
    if not entries:
        print("Nothing like that is recorded." if user or text else "Nothing has been recorded yet.")
        return
    columns = [Column(title) for title in ("AT", "USER", "VIA", "FROM", "ACTION", "TARGET")]
    rows = [
        [
            format_time(entry["at"]),
            *(str(entry[field]) for field in ("user", "via", "address", "action", "target")),
            json.dumps(entry["detail"], ensure_ascii=False) if entry["detail"] else "",
        ]
        for entry in entries
    ]
    print_table([*columns, Column("DETAIL", shrinkable=True)], rows)


def _print_user(one: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(one)
        return
    name, role, unix_user, active, projects, quota = _row(one)
    print_fields(
        [
            ("name", name),
            ("role", role),
            ("Unix user", unix_user),
            ("active", active),
            ("password", "set" if one["has_password"] else "none"),
            ("projects", projects),
            ("GPU quota", quota),
            ("created", format_time(one["created_at"])),
        ]
    )


def _row(one: dict[str, Any]) -> list[str]:
    projects = ", ".join(membership["project"] for membership in one["memberships"])
    active = "yes" if one["active"] else "no"
    quota = format_quota(one["quota"])
    return [one["name"], one["role"], one["unix_user"] or "-", active, projects or "-", quota]
