"""`helio slurm setup`: a Slurm of one's own, from a description of its machines."""

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.app import command_group
from heliostat.cli.output import JsonFlag, print_json, print_message
from heliostat.errors import Conflict, Invalid

if TYPE_CHECKING:
    from heliostat.provision.slurm.setup import SetupInput, SetupPlan

setup = command_group("A Slurm of your own, from a description of its machines. Needs no server.")

NodesOption = Annotated[str, typer.Option("--nodes", help="The machines, as docs/admins.md says.")]
PrefixOption = Annotated[str, typer.Option("--prefix", help="All below this folder, for a try without systemd.")]


@setup.command()
def node(
    said: Annotated[
        str | None,
        typer.Option("--from", help="What `slurmd -C; nvidia-smi -L` printed elsewhere; - for standard input."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print what to write into nodes.toml for this machine, or for one that said it elsewhere."""
    from heliostat.provision.slurm.setup import describe_node

    found = describe_node(Path("/dev/stdin" if said == "-" else said) if said else None)
    if as_json:
        print_json({"nodes_toml": found})
    else:
        print(found, end="")


@setup.command()
def plan(
    nodes: NodesOption = "nodes.toml",
    to: Annotated[str | None, typer.Option("--to", help="Write the files into this folder instead.")] = None,
    prefix: PrefixOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Show the files that would be written and what would run; changes nothing."""
    from heliostat.provision.slurm.setup import plan_setup, write_planned_files

    found = plan_setup(_sources(nodes, prefix))
    written = [str(path) for path in write_planned_files(_sources(nodes, prefix), Path(to))] if to else []
    if as_json:
        print_json({**asdict(found), "written": written})
        return
    for path in written:
        print(f"Wrote {path}.")
    if not written:
        _show(found)


@setup.command()
def apply(
    nodes: NodesOption = "nodes.toml",
    install: Annotated[bool, typer.Option("--install", help="Install missing packages with apt-get.")] = False,
    use: Annotated[
        bool, typer.Option("--use", help="Then set Heliostat to Slurm, like helio migrate slurm.")
    ] = False,
    prefix: PrefixOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Set up Slurm on this machine, the controller. As root. May be repeated; what is done already is left alone.

    Never writes over a configuration it did not make.
    """
    from heliostat.provision.slurm.setup import apply_setup

    if use and prefix:
        raise Invalid("--use is not for a try below a folder.", "Leave out --prefix, or --use.")
    done = []
    steps = apply_setup(_sources(nodes, prefix), install)
    for sentence in chain(steps, _use() if use else ()):
        done.append(sentence)
        if not as_json:
            print(sentence, flush=True)
    if as_json:
        print_json({"done": done})
        return
    print("Slurm is set up." if done else "Slurm is set up; there was nothing to change.")
    print_message(
        "Next: on each node, helio slurm setup node-script --with-key | ssh root@NODE sh; then helio doctor"
    )


@setup.command("node-script")
def node_script(
    nodes: NodesOption = "nodes.toml",
    with_key: Annotated[
        bool, typer.Option("--with-key", help="Put munge's key into it: then it is a secret.")
    ] = False,
    to: Annotated[str | None, typer.Option("--to", help="Write it into this file, for you alone.")] = None,
    prefix: PrefixOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Print a script that makes a machine a node: helio slurm setup node-script --with-key | ssh root@gpu2 sh"""
    from heliostat.provision.slurm.setup import make_node_script

    if with_key and not to and sys.stdout.isatty():
        raise Conflict("The key would show on your screen.", "Pipe it to ssh root@NODE sh, or write it with --to.")
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


def _show(found: "SetupPlan") -> None:
    words = {"same": "is as it should be", "foreign": "was not made by Heliostat: apply would refuse",
             "changed": "was changed by hand: apply would refuse",
             "hidden": "can be read by root alone"}  # fmt: skip
    for file in found.files:
        print(file.diff if file.diff else f"{file.path} {words[file.state]}")
        print()
    if found.packages:
        print(f"Missing packages: {', '.join(found.packages)}\n")
    print("What runs then:")
    for line in found.commands:
        print(f"  {line}")
    print_message("Do it, as root: helio slurm setup apply" + (" --install" if found.packages else ""))


def _use() -> Iterator[str]:
    """Not before it is asked for a word."""
    from heliostat.config import find_home, load_settings
    from heliostat.services.slurm_migration import migrate_to_slurm

    moved = migrate_to_slurm(load_settings(find_home()))
    if not moved.plan.is_done:
        yield "Heliostat is set to Slurm: start it with helio up --background."


def _write_private(path: Path, text: str) -> None:
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} is there already.", "Name another, or remove it.") from None
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}.", "Name another file.") from error
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)
