"""`helio env`: the software of jobs, built once for everybody who asks for the same."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.app import command_group
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

env = command_group("The software of jobs, built once.")
_COLUMNS = (
    Column("ENVIRONMENT"),
    Column("STATE"),
    Column("KIND"),
    Column("PYTHON", optional=True),
    Column("SIZE", right_aligned=True, optional=True),
    Column("USED"),
    Column("BY", optional=True),
)
DigestArgument = Annotated[str, typer.Argument(metavar="ENVIRONMENT", help="Its digest, or the beginning of it.")]
SourceArgument = Annotated[
    str,
    typer.Argument(metavar="FILE", help="requirements.txt, pyproject.toml, uv.lock or environment.yml."),
]
PythonOption = Annotated[
    str | None, typer.Option("--python", metavar="VERSION", help="3.11; else the node's usual.")
]


@env.command()
def build(
    source: SourceArgument,
    python: PythonOption = None,
    project: Annotated[str | None, typer.Option(help="Whose share the build uses.")] = None,
    background: Annotated[bool, typer.Option("--background", help="Do not wait for its end.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Have an environment built, unless it is there already, and show what its build says.

    helio env build requirements.txt
    """
    client = connect()
    made = client.environments.build(source, python=python, project=project)
    if not background:
        made = _followed(client, made, quiet=as_json)
    if as_json:
        print_json(made)
    else:
        print(_end_words(made))
    if made["state"] == "failed":
        raise typer.Exit(1)


@env.command("list")
def list_environments(
    all_users: Annotated[bool, typer.Option("--all", "-a", help="Everybody's; admins only.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the environments you have asked for, the one used last first."""
    found = connect().environments.list(all_users=all_users)
    if as_json:
        print_json(found)
    elif found:
        print_table(_COLUMNS, (_row(one) for one in found))
    else:
        print("No environments yet. Make one: helio run --env requirements.txt -- python train.py")


@env.command()
def show(digest: DigestArgument, as_json: JsonFlag = False) -> None:
    """Show one environment: what it is built from, and what was installed."""
    one = connect().environments.get(digest)
    if as_json:
        print_json(one)
        return
    print_fields(
        [
            ("Environment", one["digest"]),
            ("State", StateCell(one["state"])),
            ("Why", one["reason"]),
            ("Kind", one["kind"]),
            ("Python", one["python"]),
            ("Shared", "with everybody who asks for the same" if one["shared"] else "no: it is yours alone"),
            ("Size", format_bytes(one["size_bytes"])),
            ("First asked by", one["created_by"]),
            ("Used", format_time(one["used_at"])),
            ("Built by", f"job {one['build_job']}"),
            ("Folder", one["folder"]),
        ]
    )
    for name, text in [*one["files"].items(), ("Installed", one["lock"] or "")]:
        if text:
            print(f"\n{sanitize_text(name)}:\n{indent_text(text)}")


@env.command()
def remove(digest: DigestArgument, as_json: JsonFlag = False) -> None:
    """Take an environment from your list; it leaves the disk when nobody else has asked for it."""
    client = connect()
    name = client.environments.get(digest)["digest"]
    gone = client.environments.remove(name)
    if as_json:
        print_json({"digest": name, "gone": gone})
    else:
        print(
            f"{name[:SHORT_DIGEST_LENGTH]} is removed."
            if gone
            else f"{name[:SHORT_DIGEST_LENGTH]} is off your list; others still use it."
        )


@env.command()
def prune(
    days: Annotated[int, typer.Option(min=0, help="Not used for so many days.")] = 30,
    as_json: JsonFlag = False,
) -> None:
    """Remove what nobody has used for a while and no job needs. Admins only."""
    count = connect().environments.prune(days)
    if as_json:
        print_json({"count": count})
    else:
        print(f"{format_count(count, 'environment')} removed.")


@env.command()
def shell(
    source: Annotated[
        str, typer.Argument(metavar="ENVIRONMENT", help="A file, or the digest of an environment of yours.")
    ],
    python: PythonOption = None,
) -> None:
    """Start a shell on this machine in which programs of the environment come first."""
    client = connect()
    one = _found_or_built(client, source, python)
    folder = one["folder"]
    if one["state"] != "ready" or folder is None:
        state = "has failed" if one["state"] == "failed" else f"is {one['state']}"
        raise Conflict(
            f"{one['digest'][:SHORT_DIGEST_LENGTH]} {state}: {one['reason'] or 'not there yet'}.",
            f"helio env show {one['digest'][:SHORT_DIGEST_LENGTH]}",
        )
    if not os.path.isdir(f"{folder}/bin"):
        raise NotFound(
            f"This machine does not have {folder}.",
            "The shell runs here, not in a job: log in to a node, or use `helio run --env @DIGEST`.",
        )
    program = os.environ.get("SHELL") or "/bin/sh"
    print_message(f"{folder}; leave with exit.")
    sys.stdout.flush()
    variables = {**os.environ, "VIRTUAL_ENV": folder, "PATH": f"{folder}/bin:{os.environ.get('PATH', '')}"}
    variables.pop("PYTHONHOME", None)
    os.execvpe(program, [program], variables)  # noqa: S606 - it is to take our place


def _found_or_built(client: "Client", source: str, python: str | None) -> "Environment":
    if "." in source or "/" in source:
        return _followed(client, client.environments.build(source, python=python), quiet=False)
    return client.environments.get(source)


def _followed(client: "Client", made: "Environment", *, quiet: bool) -> "Environment":
    if made["state"] in ("ready", "failed"):
        return made
    print_message(f"Job {made['build_job']} builds {made['digest'][:SHORT_DIGEST_LENGTH]}.")
    print_build_log(client.environments.follow(made["digest"]), quiet=quiet)
    return client.environments.get(made["digest"])


def _end_words(made: "Environment") -> str:
    name = made["digest"][:SHORT_DIGEST_LENGTH]
    if made["state"] == "ready":
        return f"{name} is ready. Use it: helio run --env @{name} -- python train.py"
    if made["state"] == "failed":
        return f"{name} has failed: {made['reason'] or ''}"
    return f"{name} is {made['state']}. Watch it: helio env show {name}"


def _row(one: "Environment") -> list[str | StateCell]:
    used = format_time(one["used_at"]) if one["used_at"] else "-"
    name, python = one["digest"][:SHORT_DIGEST_LENGTH], one["python"] or "-"
    return [
        name,
        StateCell(one["state"]),
        one["kind"],
        python,
        format_bytes(one["size_bytes"]),
        used,
        one["created_by"],
    ]
