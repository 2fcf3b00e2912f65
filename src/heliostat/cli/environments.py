"""`helio env`: software environments for jobs, built once and shared by all who request the same packages."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import (
    SHORT_DIGEST_LENGTH,
    Column,
    JsonFlag,
    StateCell,
    format_count,
    indent_text,
    print_build_log,
    print_fields,
    print_json,
    print_message,
    print_table,
    sanitize_text,
)
from heliostat.cli.value_format import format_bytes, format_time
from heliostat.errors import Conflict, NotFound

if TYPE_CHECKING:
    from heliostat.client import Client
    from heliostat.client.environments import Environment

env = command_group("Software environments for jobs, built once and cached.")
_COLUMNS = (
    Column("ENVIRONMENT"),
    Column("STATE"),
    Column("KIND"),
    Column("PYTHON", optional=True),
    Column("SIZE", right_aligned=True, optional=True),
    Column("LAST USED"),
    Column("OWNER", optional=True),
)
DigestArgument = Annotated[
    str, typer.Argument(metavar="ENVIRONMENT", help="Digest of the environment, or the beginning of it.")
]
SourceArgument = Annotated[
    str,
    typer.Argument(metavar="FILE", help="requirements.txt, pyproject.toml, uv.lock or environment.yml."),
]
PythonOption = Annotated[
    str | None,
    typer.Option("--python", metavar="VERSION", help="Python version: 3.11. Default: that of the node."),
]


@env.command()
def build(
    source: SourceArgument,
    python: PythonOption = None,
    project: Annotated[str | None, typer.Option(help="Project that the build job is charged to.")] = None,
    background: Annotated[bool, typer.Option("--background", help="Do not wait for the build to end.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Build an environment, unless it exists, and print the build log.

    helio env build requirements.txt
    """
    client = connect()
    built = client.environments.build(source, python=python, project=project)
    if not background:
        built = _follow_build(client, built, quiet=as_json)
    if as_json:
        print_json(built)
    else:
        print(_result_message(built))
    if built["state"] == "failed":
        raise typer.Exit(1)


@env.command("list")
def list_environments(
    all_users: Annotated[
        bool, typer.Option("--all", "-a", help="Environments of all users; admins only.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """List your environments, most recently used first."""
    environments = connect().environments.list(all_users=all_users)
    if as_json:
        print_json(environments)
    elif environments:
        print_table(_COLUMNS, (_row(data) for data in environments))
    else:
        print("No environments yet. Build one: helio run --env requirements.txt -- python train.py")


@env.command()
def show(
    digest: DigestArgument,
    full: Annotated[bool, typer.Option("--full", help="Print its files and the installed packages too.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show an environment: its state, its size and the number of its packages."""
    data = connect().environments.get(digest)
    if as_json:
        print_json(data)
        return
    print_fields(
        [
            ("Environment", data["digest"]),
            ("State", StateCell(data["state"])),
            ("Reason", data["reason"]),
            ("Kind", data["kind"]),
            ("Python", data["python"]),
            ("Shared", "with all users who request the same packages" if data["shared"] else "no, only yours"),
            ("Size", format_bytes(data["size_bytes"])),
            ("Created by", data["created_by"]),
            ("Last used", format_time(data["used_at"])),
            ("Build job", str(data["build_job"])),
            ("Folder", data["folder"]),
            ("Files", ", ".join(data["files"])),
            (
                "Packages",
                f"{_count_packages(data['lock'])} installed; --full lists them" if data["lock"] else None,
            ),
        ]
    )
    for name, text in [*data["files"].items(), ("Installed", data["lock"] or "")] if full else ():
        if text:
            print(f"\n{sanitize_text(name)}:\n{indent_text(text)}")


def _count_packages(lock: str) -> int:
    """Lines without comments, options and hashes."""
    return sum(bool(line) and not line.startswith(("#", "@", " ", "-")) for line in lock.splitlines())


@env.command()
def remove(digest: DigestArgument, as_json: JsonFlag = False) -> None:
    """Remove an environment from your list; its files are deleted when no other user has it in theirs."""
    client = connect()
    name = client.environments.get(digest)["digest"]
    gone = client.environments.remove(name)
    if as_json:
        print_json({"digest": name, "gone": gone})
    else:
        print(
            f"{name[:SHORT_DIGEST_LENGTH]} is removed."
            if gone
            else f"{name[:SHORT_DIGEST_LENGTH]} is removed from your list; other users still have it."
        )


@env.command()
def prune(
    days: Annotated[int, typer.Option(min=0, help="Remove environments unused for this many days.")] = 30,
    as_json: JsonFlag = False,
) -> None:
    """Remove unused environments that no job needs. Admins only."""
    count = connect().environments.prune(days)
    if as_json:
        print_json({"count": count})
    else:
        print(f"{format_count(count, 'environment')} removed.")


@env.command()
def shell(
    source: Annotated[
        str, typer.Argument(metavar="ENVIRONMENT", help="A file, or the digest of one of your environments.")
    ],
    python: PythonOption = None,
) -> None:
    """Start a shell on this machine with the environment first in its PATH."""
    client = connect()
    data = _find_or_build(client, source, python)
    folder = data["folder"]
    if data["state"] != "ready" or folder is None:
        state = "has failed" if data["state"] == "failed" else f"is {data['state']}"
        raise Conflict(
            f"Environment {data['digest'][:SHORT_DIGEST_LENGTH]} {state}: {data['reason'] or 'not built yet'}.",
            f"helio env show {data['digest'][:SHORT_DIGEST_LENGTH]}",
        )
    if not os.path.isdir(f"{folder}/bin"):
        raise NotFound(
            f"The folder {folder} does not exist on this machine.",
            "The shell runs here, not in a job. Log in to a node, or use `helio run --env @DIGEST`.",
        )
    program = os.environ.get("SHELL") or "/bin/sh"
    print_message(f"Shell with {folder}. Type exit to leave.")
    sys.stdout.flush()
    variables = {**os.environ, "VIRTUAL_ENV": folder, "PATH": f"{folder}/bin:{os.environ.get('PATH', '')}"}
    variables.pop("PYTHONHOME", None)
    os.execvpe(program, [program], variables)  # noqa: S606 - the shell replaces this process


def _find_or_build(client: "Client", source: str, python: str | None) -> "Environment":
    if "." in source or "/" in source:
        return _follow_build(client, client.environments.build(source, python=python), quiet=False)
    return client.environments.get(source)


def _follow_build(client: "Client", built: "Environment", *, quiet: bool) -> "Environment":
    if built["state"] in ("ready", "failed"):
        return built
    print_message(f"Job {built['build_job']} builds {built['digest'][:SHORT_DIGEST_LENGTH]}.")
    print_build_log(client.environments.follow(built["digest"]), quiet=quiet)
    return client.environments.get(built["digest"])


def _result_message(built: "Environment") -> str:
    name = built["digest"][:SHORT_DIGEST_LENGTH]
    if built["state"] == "ready":
        return f"{name} is ready. Use it: helio run --env @{name} -- python train.py"
    if built["state"] == "failed":
        return f"The build of {name} failed: {built['reason'] or 'see its log'}"
    return f"{name} is {built['state']}. Watch it: helio env show {name}"


def _row(data: "Environment") -> list[str | StateCell]:
    used = format_time(data["used_at"]) if data["used_at"] else "-"
    name, python = data["digest"][:SHORT_DIGEST_LENGTH], data["python"] or "-"
    return [
        name,
        StateCell(data["state"]),
        data["kind"],
        python,
        format_bytes(data["size_bytes"]),
        used,
        data["created_by"],
    ]
