"""More time for a job in Slurm: its limit there follows ours."""

from dataclasses import replace

from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.engines.slurm.rounds import Rounds
from heliostat.engines.slurm.script import limit_minutes
from heliostat.engines.slurm.terms import Unfit, place_of
from heliostat.errors import Conflict
from heliostat.models import Attempt


def extend(rounds: Rounds, commands: Commands, attempt: Attempt, limit_seconds: int) -> None:
    """Told to Slurm first: after a crash in between it is Slurm's word that counts. Raises Conflict or
    EngineUnavailable."""
    job_id, handed = attempt.job.id, rounds.handed.get(attempt.id)
    if handed is None or handed.number is None:
        raise Conflict(f"Job {job_id} is not in Slurm now.", "Try again in a moment.")
    before = handed.attempt.job.time_limit_seconds
    if before is None or before >= limit_seconds:
        return
    longer = with_limit(handed.attempt, limit_seconds)
    try:
        _check_partition(rounds, longer, limit_seconds)
        minutes = limit_minutes(longer, rounds.site)
        if minutes is not None:
            commands.set_time_limit(handed.number, minutes)
    except (SlurmRefused, Unfit) as error:
        raise Conflict(
            f"Slurm gives job {job_id} no more time: {error}.",
            "Only root, or an operator of Slurm, may raise a limit: ask an admin.",
        ) from error
    handed.attempt = longer


def with_limit(attempt: Attempt, limit_seconds: int) -> Attempt:
    """Never a shorter one."""
    before = attempt.job.time_limit_seconds
    if before is None or before >= limit_seconds:
        return attempt
    return replace(attempt, job=replace(attempt.job, time_limit_seconds=limit_seconds))


def _check_partition(rounds: Rounds, attempt: Attempt, limit_seconds: int) -> None:
    """Root could raise it further, but not those who share the partition."""
    site = rounds.site
    partition = place_of(attempt.job, attempt.data_class, site.terms).partition or ""
    allowed = site.longest_seconds.get(partition)
    if allowed is not None and limit_seconds > allowed:
        raise Conflict(
            f"The partition {partition or 'of this job'} lets jobs run for at most {allowed // 60} minutes.",
            "Ask for less, or an admin.",
        )
