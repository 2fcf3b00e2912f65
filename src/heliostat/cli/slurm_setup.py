"""`helio slurm setup`: installs and configures a Slurm cluster from a description of its nodes."""

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.output import JsonFlag, print_json, print_message
from heliostat.errors import Conflict, Invalid

if TYPE_CHECKING:
    from heliostat.provision.slurm.setup import SetupInput, SetupPlan

setup = command_group("Set up a Slurm cluster from a description of its nodes. Needs no server.")

NodesOption = Annotated[str, typer.Option("--nodes", help="File that describes the nodes; see docs/admins.md.")]
PrefixOption = Annotated[
    str, typer.Option("--prefix", help="Put all files below this folder and use no systemd, for a trial.")
]


@setup.command()
def node(
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="File with the output of `slurmd -C; nvidia-smi -L` of another machine; - for standard input.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the entry of this or another machine for nodes.toml."""
    from heliostat.provision.slurm.setup import describe_node

    entry = describe_node(Path("/dev/stdin" if source == "-" else source) if source else None)
    if as_json:
        print_json({"nodes_toml": entry})
    else:
        print(entry, end="")


@setup.command()
def plan(
    nodes: NodesOption = "nodes.toml",
    to: Annotated[
        str | None, typer.Option("--to", help="Write the planned files into this folder instead of printing them.")
    ] = None,
    prefix: PrefixOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Show the files that apply would write and the commands that it would run."""
    from heliostat.provision.slurm.setup import plan_setup, write_planned_files

    planned = plan_setup(_sources(nodes, prefix))
    written = [str(path) for path in write_planned_files(_sources(nodes, prefix), Path(to))] if to else []
    if as_json:
        print_json({**asdict(planned), "written": written})
        return
    for path in written:
        print(f"Wrote {path}.")
    if not written:
        _show(planned)


@setup.command()
def apply(
    nodes: NodesOption = "nodes.toml",
    install: Annotated[bool, typer.Option("--install", help="Install missing packages with apt-get.")] = False,
    use: Annotated[
        bool, typer.Option("--use", help="Then migrate Heliostat to Slurm, as helio migrate slurm does.")
    ] = False,
    prefix: PrefixOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Set up Slurm on this machine as the controller. Needs root. May be repeated.

    Never overwrites a configuration that Heliostat did not create.
    """
    from heliostat.provision.slurm.setup import apply_setup

    if use and prefix:
        raise Invalid("--use and --prefix cannot be combined.", "Omit one of them.")
    done = []
    steps = apply_setup(_sources(nodes, prefix), install)
    for sentence in chain(steps, _use() if use else ()):
        done.append(sentence)
        if not as_json:
            print(sentence, flush=True)
    if as_json:
        print_json({"done": done})
        return
    print("Slurm is set up." if done else "Slurm is set up; nothing had to be changed.")
    print_message(
        "Next: on each node, helio slurm setup node-script --with-key | ssh root@NODE sh; then helio doctor"
    )


@setup.command("node-script")
def node_script(
    nodes: NodesOption = "nodes.toml",
    with_key: Annotated[
        bool, typer.Option("--with-key", help="Include the munge key; the script is then a secret.")
    ] = False,
    to: Annotated[
        str | None, typer.Option("--to", help="Write the script to this file, readable only by you.")
    ] = None,
    prefix: PrefixOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Print a script that makes a machine a node of the Slurm cluster.

    helio slurm setup node-script --with-key | ssh root@gpu2 sh
    """
    from heliostat.provision.slurm.setup import make_node_script

    if with_key and not to and sys.stdout.isatty():
        raise Conflict(
            "The munge key is not printed to a terminal.", "Pipe the script to ssh root@NODE sh, or use --to FILE."
        )
    text = make_node_script(_sources(nodes, prefix), with_key)
    if to:
        _write_private(Path(to), text)
    if as_json:
        print_json({"written": to} if to else {"script": text})
    elif to:
        print(f"Wrote {to}. On each node, as root: sh {Path(to).name}")
    else:
        print(text, end="")


def _sources(nodes: str, prefix: str) -> "SetupInput":
    from heliostat.provision.slurm.setup import SetupInput

    return SetupInput(Path(nodes), prefix)


def _show(planned: "SetupPlan") -> None:
    messages = {"same": "is up to date", "foreign": "was not created by Heliostat: apply would refuse",
                "changed": "was changed by hand: apply would refuse",
                "hidden": "can be read only by root"}  # fmt: skip
    for file in planned.files:
        print(file.diff if file.diff else f"{file.path} {messages[file.state]}")
        print()
    if planned.packages:
        print(f"Missing packages: {', '.join(planned.packages)}\n")
    print("Commands to run:")
    for line in planned.commands:
        print(f"  {line}")
    print_message("Apply it as root: helio slurm setup apply" + (" --install" if planned.packages else ""))


def _use() -> Iterator[str]:
    """A generator, so that the migration starts only after the setup steps."""
    from heliostat.config import find_home, load_settings
    from heliostat.services.migration_to_slurm import migrate_to_slurm

    moved = migrate_to_slurm(load_settings(find_home()))
    if not moved.plan.is_done:
        yield "Heliostat now uses Slurm. Start it: helio up --background"


def _write_private(path: Path, text: str) -> None:
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} exists already.", "Name another file, or remove it.") from None
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}.", "Name another file.") from error
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)
