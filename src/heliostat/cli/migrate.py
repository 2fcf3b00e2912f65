"""`helio migrate`: moves an installation from the local engine to Slurm."""

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.output import JsonFlag, format_count, print_json

if TYPE_CHECKING:
    from heliostat.services.migration_to_slurm import MigrationPlan


class MigrationTarget(StrEnum):
    SLURM = "slurm"


def migrate(
    target: Annotated[MigrationTarget, typer.Argument(help="Engine to migrate to.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check; change nothing.")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Hold waiting jobs that Slurm cannot run.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Migrate from the local engine to Slurm.

    Keeps users, projects, history and waiting jobs, and creates the accounts that Slurm needs for them. Stop
    Heliostat first. Nothing is changed if a check fails.
    """
    from heliostat.config import find_home, load_settings
    from heliostat.services.migration_to_slurm import migrate_to_slurm, plan_migration

    settings = load_settings(find_home())
    copies: list[str] = []
    if dry_run:
        plan = plan_migration(settings)
    else:
        moved = migrate_to_slurm(settings, hold)
        plan, copies = moved.plan, [str(copy) for copy in moved.backup_files]
    if as_json:
        print_json({**asdict(plan), "dry_run": dry_run, "copies": copies})
    else:
        _print_plan(plan, dry_run, copies)
    if dry_run:
        plan.require_ready(hold)


def _print_plan(plan: "MigrationPlan", dry_run: bool, copies: list[str]) -> None:
    if plan.is_done:
        print("Heliostat uses Slurm already.")
        return
    for problem in plan.problems:
        print(f"problem: {problem.message}" + (f" {problem.hint}" if problem.hint else ""))
    for job_id in plan.active:
        print(f"job {job_id} is running on this machine: wait for its end or requeue it first")
    for job in plan.unfit:
        print(f"job {job.job_id} of {job.user} cannot run on Slurm: {job.why}")
    for step in plan.account_steps:
        print(f"Slurm's accounts: {step}")
    for line in plan.accounts_left_out:
        print(f"Slurm's accounts, unchanged: {line}")
    kept = f"Users, projects, history and {format_count(plan.waiting, 'waiting job')}"
    if dry_run:
        print(f"{kept} would be kept." + (" Slurm's accounts would be changed." if plan.account_steps else ""))
        return
    for copy in copies:
        print(f"backup: {copy}")
    print(f"{kept} are kept. Heliostat now uses Slurm. Start it: helio up --background")
