"""`helio slurm`: synchronizes Slurm's accounts with those of Heliostat."""

from typing import TYPE_CHECKING

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import JsonFlag, format_count, print_json, print_message
from heliostat.cli.slurm_setup import setup

if TYPE_CHECKING:
    from heliostat.client.slurm import SlurmAccountsPlan

slurm = command_group("Synchronize accounts with Slurm, or set up a Slurm cluster.")
slurm.add_typer(setup, name="setup")


@slurm.command()
def plan(as_json: JsonFlag = False) -> None:
    """Show the changes that apply would make to Slurm's accounts. Admins only."""
    planned = connect().slurm.plan_accounts()
    if as_json:
        print_json(planned)
        return
    _print(planned)
    if planned["steps"]:
        print_message(f"{format_count(len(planned['steps']), 'step')}. Apply them: helio slurm apply")
    else:
        print(f"Slurm's accounts on {planned['cluster']} are up to date{_exceptions(planned)}.")


@slurm.command()
def apply(as_json: JsonFlag = False) -> None:
    """Change Slurm's accounts, shares, limits and QOS to those of Heliostat. Admins only.

    Changes only what Heliostat has created. May be repeated.
    """
    applied = connect().slurm.apply_accounts()
    if as_json:
        print_json(applied)
        return
    _print(applied)
    if applied["steps"]:
        print(f"Done: {format_count(len(applied['steps']), 'step')}{_exceptions(applied)}.")
    else:
        print(f"Slurm's accounts on {applied['cluster']} were up to date already{_exceptions(applied)}.")


def _exceptions(plan: "SlurmAccountsPlan") -> str:
    return ", except for what is listed above" if plan["unmanaged"] or plan["unsupported"] else ""


def _print(plan: "SlurmAccountsPlan") -> None:
    for step in plan["steps"]:
        print(step["sentence"])
    for title, lines in (
        ("Not managed by Heliostat", plan["unmanaged"]),
        ("Not supported by Slurm", plan["unsupported"]),
    ):
        if lines:
            print(f"\n{title}:")
            for line in lines:
                print(f"  {line}")
    if plan["unmanaged"] or plan["unsupported"]:
        print()
