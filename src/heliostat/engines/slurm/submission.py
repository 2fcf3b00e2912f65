"""Lays out an attempt's files where every node sees them, and says with what words it is handed over."""

import contextlib
import os
from dataclasses import dataclass

from heliostat.config import Settings
from heliostat.engines.environment import Person, Surroundings
from heliostat.engines.folders import JobFolder, lay_out, make_private, open_log
from heliostat.engines.slurm.arrays import Chunk, array_argv, array_script
from heliostat.engines.slurm.script import Paths, Site, batch_script, sbatch_argv
from heliostat.models import Attempt


@dataclass(frozen=True, slots=True)
class Submission:
    argv: list[str]
    script: str
    begun: str  # see `Paths`


def begun_path(settings: Settings, attempt: Attempt) -> str:
    return JobFolder.of(settings.home.jobs, attempt.job.id).log(attempt.job.attempt, "begun")


def prepared(attempt: Attempt, person: Person, settings: Settings, site: Site) -> Submission:
    """May be called again for the same attempt. Raises OSError when the files cannot be made."""
    paths = files_made(attempt, person, settings)
    around = _around(attempt, settings, site)
    argv = sbatch_argv(attempt, person, paths, site)
    return Submission(argv, batch_script(attempt, person, paths, around), paths.begun)


def array_prepared(
    chunk: Chunk, person: Person, settings: Settings, site: Site, after: int | None
) -> tuple[list[str], str]:
    """The words and the script for all of them. Their files are made by `files_made`."""
    around = _around(chunk.first, settings, site)
    script = array_script(chunk, person, str(settings.home.jobs), around, site.instance)
    return array_argv(chunk, person, site, after), script


def files_made(attempt: Attempt, person: Person, settings: Settings) -> Paths:
    """May be called again for the same attempt. Raises OSError when they cannot be made."""
    folder = JobFolder.of(settings.home.jobs, attempt.job.id)
    workdir, script = lay_out(attempt, person, folder)
    paths = Paths(
        workdir=workdir,
        script=script,
        stdout=folder.log(attempt.job.attempt, "stdout"),
        stderr=folder.log(attempt.job.attempt, "stderr"),
        begun=begun_path(settings, attempt),
        tasks=folder.log(attempt.job.attempt, "tasks"),
    )
    _make_files(paths, person)
    return paths


def _around(attempt: Attempt, settings: Settings, site: Site) -> Surroundings:
    checkpoints = JobFolder.of(settings.home.jobs, attempt.job.id).checkpoints
    return Surroundings(str(settings.home.path), f"{site.instance}-{attempt.id}", checkpoints)


def _make_files(paths: Paths, person: Person) -> None:
    """The folder is the server's, so that nobody can swap its entries: what the job writes to must be there."""
    for path in (paths.stdout, paths.stderr, paths.begun):
        with contextlib.suppress(FileExistsError), contextlib.ExitStack() as stack:
            open_log(path, person, stack)
    make_private(paths.tasks, person)
    os.chmod(paths.tasks, 0o700)
