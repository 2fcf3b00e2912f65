"""Lays out an attempt's files where every node sees them, and says with what words it is handed over."""

import contextlib
import os
from dataclasses import dataclass

from heliostat.config import Settings
from heliostat.engines.containers import Belongings
from heliostat.engines.environment import Person, Surroundings, job_environment
from heliostat.engines.folders import JobFolder, lay_out, make_private, new_log
from heliostat.engines.slurm.arrays import ArraySite, Chunk, array_argv, array_belongings, array_script
from heliostat.engines.slurm.contained import contained
from heliostat.engines.slurm.script import Paths, Site, batch_script, sbatch_argv
from heliostat.models import Attempt


@dataclass(frozen=True, slots=True)
class Submission:
    argv: list[str]
    script: str
    receipt: str  # see `Paths`


def receipt_path(settings: Settings, attempt: Attempt) -> str:
    return JobFolder.of(settings.home.jobs, attempt.job.id).log(attempt.job.attempt, "receipt")


def prepared(attempt: Attempt, person: Person, settings: Settings, site: Site) -> Submission:
    """May be called again for the same attempt. Raises OSError when the files cannot be made, and Refused."""
    paths = files_made(attempt, person, settings)
    around = _around(attempt, settings, site)
    argv = sbatch_argv(attempt, person, paths, site)
    variables = job_environment(attempt, person, around, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    brought = Belongings(paths.workdir, around.checkpoints, paths.script, variables)
    inner = contained(attempt, person, brought, settings)
    return Submission(argv, batch_script(attempt, person, paths, around, inner), paths.receipt)


def array_prepared(chunk: Chunk, person: Person, settings: Settings, site: Site) -> tuple[list[str], str]:
    """The words and the script for all of them. Their files are made by `files_made`. Raises Refused."""
    around = _around(chunk.first, settings, site)
    inner = contained(chunk.first, person, array_belongings(chunk, person, around, site.instance), settings)
    script = array_script(chunk, person, around, ArraySite(str(settings.home.jobs), site.instance, inner))
    return array_argv(chunk, person, site), script


def files_made(attempt: Attempt, person: Person, settings: Settings) -> Paths:
    """May be called again for the same attempt. Raises OSError when they cannot be made."""
    folder = JobFolder.of(settings.home.jobs, attempt.job.id)
    workdir, script = lay_out(attempt, person, folder, settings.home)
    paths = Paths(
        workdir=workdir,
        script=script,
        stdout=folder.log(attempt.job.attempt, "stdout"),
        stderr=folder.log(attempt.job.attempt, "stderr"),
        receipt=receipt_path(settings, attempt),
        tasks=folder.log(attempt.job.attempt, "tasks"),
    )
    _make_files(paths, person)
    return paths


def _around(attempt: Attempt, settings: Settings, site: Site) -> Surroundings:
    checkpoints = JobFolder.of(settings.home.jobs, attempt.job.id).checkpoints
    return Surroundings(str(settings.home.path), f"{site.instance}-{attempt.id}", checkpoints)


def begin_again(settings: Settings, attempt: Attempt, first: int, person: Person, *, runs: bool) -> None:
    """Of a requeued job, which writes where it did as its first attempt: what it wrote so far stays the former
    attempt's, unless it runs again already. Raises OSError."""
    folder, newest = JobFolder.of(settings.home.jobs, attempt.job.id), attempt.job.attempt
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{folder.log(first, 'tasks')}/first")
    for stream in ("stdout", "stderr", "receipt"):
        path = folder.log(first, stream)
        if not runs:
            kept = former_log(folder, first, stream)
            if newest == first + 1 and not os.path.exists(kept):
                os.rename(path, kept)
            else:
                os.unlink(path)  # it has the former attempt's name too
            with new_log(path, person):
                pass
        with contextlib.suppress(FileExistsError):
            os.link(path, folder.log(newest, stream), follow_symlinks=False)


def former_log(folder: JobFolder, attempt: int, stream: str) -> str:
    """Where the output of an attempt is once Slurm has requeued it under the same number."""
    return folder.log(attempt, f"former.{stream}")


def _make_files(paths: Paths, person: Person) -> None:
    """The folder is the server's, so that nobody can swap its entries: what the job writes to must be there."""
    for path in (paths.stdout, paths.stderr, paths.receipt):
        with contextlib.suppress(FileExistsError), new_log(path, person):
            pass
    make_private(paths.tasks, person)
    os.chmod(paths.tasks, 0o700)
