"""`helio user`: accounts."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import (
    Column,
    JsonFlag,
    format_count,
    print_fields,
    print_json,
    print_message,
    print_table,
)
from heliostat.cli.projects import (
    QUOTA_OPTION_NAMES,
    GpuHoursOption,
    QueuedGpusOption,
    RunningGpusOption,
    format_quota,
    parse_quota_changes,
)
from heliostat.cli.value_format import format_time

user = command_group("User accounts.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
RoleOption = Annotated[str | None, typer.Option(help="Role: user or admin.")]
PasswordStdinOption = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]


@user.command()
def create(
    name: NameArgument,
    role: RoleOption = None,
    unix_user: Annotated[str | None, typer.Option(help="Unix user that their jobs run as.")] = None,
    project: Annotated[list[str] | None, typer.Option(help="Project to add the user to. May be repeated.")] = None,
    password_stdin: PasswordStdinOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Create an account."""
    from heliostat.cli.password_prompt import prompt_password

    password = prompt_password("Password", from_stdin=True) if password_stdin else None
    account = connect().users.create(name, role=role, unix_user=unix_user, password=password, projects=project)
    _print_user(account, as_json)


@user.command("list")
def list_users(as_json: JsonFlag = False) -> None:
    """List accounts."""
    accounts = connect().users.list()
    if as_json:
        print_json(accounts)
        return
    columns = ("NAME", "ROLE", "UNIX USER", "ACTIVE", "PROJECTS", "GPU QUOTA")
    print_table([Column(title) for title in columns], (_row(account) for account in accounts))


@user.command()
def show(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show an account."""
    _print_user(connect().users.get(name), as_json)


@user.command()
def password(name: NameArgument, password_stdin: PasswordStdinOption = False, as_json: JsonFlag = False) -> None:
    """Set the password of an account. To change your own, enter your current password first."""
    from heliostat.cli.login import flatten_caller
    from heliostat.cli.password_prompt import prompt_password

    client = connect()
    caller = flatten_caller(client.auth.whoami())
    needs_current = caller["name"] == name and caller.get("has_password") and not client.address.is_local_socket
    current = prompt_password("Current password", from_stdin=password_stdin) if needs_current else None
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
    active: Annotated[
        bool | None, typer.Option("--active/--inactive", help="Activate or deactivate the account.")
    ] = None,
    cancel_jobs: Annotated[
        bool, typer.Option("--cancel-jobs", help="With --inactive: cancel all jobs of the account.")
    ] = False,
    unix_user: Annotated[
        str | None, typer.Option(help="Unix user that their jobs run as; '' for none: no jobs.")
    ] = None,
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
    if cancel_jobs and active is not False:
        raise typer.BadParameter("--cancel-jobs needs --inactive. To cancel jobs only: helio cancel --user NAME.")
    changes |= parse_quota_changes(running_gpus, queued_gpus, gpu_hours)
    if not changes:
        raise typer.BadParameter(
            f"Nothing to change. Use --role, --active, --inactive, --unix-user, {QUOTA_OPTION_NAMES}."
        )
    client = connect()
    changed = client.users.change(name, **changes)
    work = client.users.work(name) if active is False else None
    if cancel_jobs and work is not None and (jobs := work["running_jobs"] + work["waiting_jobs"]):
        client.jobs.cancel_many(jobs)
    _print_user(changed, as_json)
    if work is not None:
        for line in _describe_work(name, work, cancel_jobs):
            print_message(line)


def _describe_work(name: str, work: dict[str, Any], cancelled: bool) -> Iterator[str]:
    if running := work["running_jobs"]:
        yield f"{'Cancelled' if cancelled else 'Still running'}: {_count_and_list(running, 'job')}."
    if waiting := work["waiting_jobs"]:
        yield f"{'Cancelled' if cancelled else 'Still waiting'}: {_count_and_list(waiting, 'job')}."
    if (running or waiting) and not cancelled:
        yield f"Cancel them: helio cancel --user {name}"
    if services := work["services"]:
        yield f"Replicas of these services are not replaced when they end: {', '.join(services)}."
    if schedules := work["schedules"]:
        yield f"These schedules submit no more jobs: {', '.join(schedules)}."


def _count_and_list(ids: list[int], noun: str) -> str:
    shown = ", ".join(map(str, ids[:10])) + (", …" if len(ids) > 10 else "")
    return f"{format_count(len(ids), noun)} ({shown})"


def _print_user(account: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(account)
        return
    name, role, unix_user, active, projects, quota = _row(account)
    print_fields(
        [
            ("name", name),
            ("role", role),
            ("Unix user", unix_user),
            ("active", active),
            ("password", "set" if account["has_password"] else "none"),
            ("projects", projects),
            ("GPU quota", quota),
            ("created", format_time(account["created_at"])),
        ]
    )


def _row(account: dict[str, Any]) -> list[str]:
    projects = ", ".join(membership["project"] for membership in account["memberships"])
    active = "yes" if account["active"] else "no"
    quota = format_quota(account["quota"])
    return [account["name"], account["role"], account["unix_user"] or "-", active, projects or "-", quota]
