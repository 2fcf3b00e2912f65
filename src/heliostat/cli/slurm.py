"""`helio slurm`: Slurm's accounts, kept in step with ours."""

from typing import TYPE_CHECKING

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import JsonFlag, format_count, print_json, print_message
from heliostat.cli.slurm_setup import setup

if TYPE_CHECKING:
    from heliostat.client.slurm import SlurmAccountsPlan

slurm = command_group("Slurm's accounts, kept in step with ours; and a Slurm of your own.")
slurm.add_typer(setup, name="setup")


@slurm.command()
def plan(as_json: JsonFlag = False) -> None:
    """Show what would be changed in Slurm; changes nothing. Admins only."""
    found = connect().slurm.plan_accounts()
    if as_json:
        print_json(found)
        return
    _print(found)
    if found["steps"]:
        print_message(f"{format_count(len(found['steps']), 'step')}. Do it: helio slurm apply")
    else:
        print(f"Slurm's accounts on {found['cluster']} are in step.")


@slurm.command()
def apply(as_json: JsonFlag = False) -> None:
    """Change Slurm's accounts, shares, limits and QOS to what Heliostat has. Admins only.

    Adds and changes only what Heliostat made. May be repeated.
    """
    done = connect().slurm.apply_accounts()
    if as_json:
        print_json(done)
        return
    _print(done)
    if done["steps"]:
        print(f"Done: {format_count(len(done['steps']), 'step')}.")
    else:
        print(f"Slurm's accounts on {done['cluster']} were in step already.")


def _print(plan: "SlurmAccountsPlan") -> None:
    for step in plan["steps"]:
        print(step["sentence"])
    for title, lines in (("Not ours", plan["unmanaged"]), ("Slurm cannot", plan["unsupported"])):
        if lines:
            print(f"\n{title}:")
            for line in lines:
                print(f"  {line}")
    if plan["unmanaged"] or plan["unsupported"]:
        print()
