"""Projects, their members, and the departments they belong to."""

from typing import Annotated, Any

import typer

from heliostat.cli.app import noun
from heliostat.cli.connect import connect
from heliostat.cli.output import Column, JsonFlag, print_facts, print_json, print_table

project = noun("Projects and their members.")
department = noun("Departments.")
Name = Annotated[str, typer.Argument(metavar="NAME")]
Project = Annotated[str, typer.Argument(metavar="PROJECT")]
User = Annotated[str, typer.Argument(metavar="USER")]


@project.command("create")
def create_project(
    name: Name,
    department: Annotated[str, typer.Option(help="The department it belongs to.")] = "default",
    as_json: JsonFlag = False,
) -> None:
    """Create a project."""
    _print_project(connect().create_project(name, department), as_json)


@project.command("list")
def list_projects(as_json: JsonFlag = False) -> None:
    """List your projects; for an admin, all of them."""
    found = connect().projects()
    if as_json:
        print_json(found)
        return
    if not found:
        print("You are in no project. Ask an admin: helio project add PROJECT USER")
        return
    rows = [[one["name"], one["department"], str(len(one["members"]))] for one in found]
    print_table([Column("PROJECT"), Column("DEPARTMENT"), Column("MEMBERS", right=True)], rows)


@project.command("show")
def show_project(name: Name, as_json: JsonFlag = False) -> None:
    """Show a project and its members."""
    _print_project(connect().project(name), as_json)


@project.command("add")
def add_member(
    name: Project,
    user: User,
    role: Annotated[str, typer.Option(help="member or manager.")] = "member",
    as_json: JsonFlag = False,
) -> None:
    """Add a member, or change their role."""
    _print_project(connect().add_member(name, user, role), as_json)


@project.command("remove")
def remove_member(name: Project, user: User, as_json: JsonFlag = False) -> None:
    """Remove a member."""
    _print_project(connect().remove_member(name, user), as_json)


@department.command("create")
def create_department(name: Name, as_json: JsonFlag = False) -> None:
    """Create a department."""
    made = connect().create_department(name)
    if as_json:
        print_json(made)
    else:
        print(f"Department {made['name']} is there. Next: helio project create NAME --department {made['name']}")


@department.command("list")
def list_departments(as_json: JsonFlag = False) -> None:
    """List departments."""
    found = connect().departments()
    if as_json:
        print_json(found)
    else:
        print_table([Column("DEPARTMENT")], [[one["name"]] for one in found])


def _print_project(one: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(one)
        return
    members = ", ".join(f"{member['user']} ({member['role']})" for member in one["members"])
    print_facts(
        [("project", one["name"]), ("department", one["department"]), ("members", members or "nobody yet")]
    )
