"""`helio migrate`: from this machine alone to a cluster."""

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.output import JsonFlag, format_count, print_json

if TYPE_CHECKING:
    from heliostat.services.slurm_migration import MigrationPlan


class MigrationTarget(StrEnum):
    SLURM = "slurm"


def migrate(
    target: Annotated[MigrationTarget, typer.Argument(help="Where to.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Hold waiting jobs that Slurm cannot take.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Move from this machine alone to Slurm.

    People, projects, history and waiting jobs come along. Stop Heliostat first. Nothing is changed unless
    everything is in order.
    """
    from heliostat.config import find_home, load_settings
    from heliostat.services.slurm_migration import migrate_to_slurm, plan_migration

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
        _tell(plan, dry_run, copies)
    if dry_run:
        plan.require_ready(hold)


def _tell(plan: "MigrationPlan", dry_run: bool, copies: list[str]) -> None:
    if plan.is_done:
        print("Heliostat is set to Slurm already.")
        return
    for problem in plan.problems:
        print(f"problem: {problem.message}" + (f" {problem.hint}" if problem.hint else ""))
    for job_id in plan.active:
        print(f"job {job_id} runs on this machine: it must end or be requeued first")
    for one in plan.unfit:
        print(f"job {one.job_id} of {one.user} cannot go to Slurm: {one.why}")
    come_along = f"People, projects and history stay; {format_count(plan.waiting, 'waiting job')}"
    if dry_run:
        print(f"{come_along} would come along.")
        return
    for copy in copies:
        print(f"copy: {copy}")
    print(f"{come_along} will come along. Heliostat is set to Slurm: start it with helio up --background.")
