"""Environments on disk: taken over when their build has ended.

`environments/ready/DIGEST` is there or not there, never half: it comes by a rename, and leaves by one. What a
build that was killed has left lies in the folder of that job, and is nobody's environment.
"""

import contextlib
import errno
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

from heliostat.config import Home, Settings
from heliostat.controller.failure_details import add_image_push_failure, read_tool_message
from heliostat.engines.contract import Engine, RunsPrograms
from heliostat.engines.job_files import open_without_links
from heliostat.engines.job_variables import environment_folder
from heliostat.models import AttemptEnded, EndCause, Job
from heliostat.models.environments import BUILD_FAILURE_PREFIX, IMAGE_BUILD_JOB, IMAGE_PUSH_JOB, INTERNAL_JOB_KINDS
from heliostat.models.images import explain_signature_refusal
from heliostat.server_log import get_logger

log = get_logger()

_MOST = 100_000  # environments looked at in one go


class InstallationFailed(Exception):
    """What the build has left is no environment; says why."""


def install_build_result(settings: Settings, engine: Engine, job: Job, seen: AttemptEnded) -> AttemptEnded:
    """What the end of a build means, once its result is taken over; of other jobs, what it says. Repeatable."""
    if job.kind not in INTERNAL_JOB_KINDS or job.environment is None or not isinstance(engine, RunsPrograms):
        return seen
    if job.kind == IMAGE_PUSH_JOB:
        return add_image_push_failure(engine, job, seen)
    work = engine.work_folder(job.id)
    if seen.cause is not EndCause.EXITED or seen.exit_code != 0:
        _clear(settings.home, job, work)
    if seen.cause is not EndCause.EXITED:
        return seen
    if seen.exit_code != 0:
        return replace(seen, detail=BUILD_FAILURE_PREFIX + _why(engine, job, seen.exit_code))
    try:
        _take_over(settings, job.environment, work, is_shared=job.unix_user == settings.environments.builder)
    except (OSError, subprocess.SubprocessError, InstallationFailed) as error:
        log.warning("environment_not_taken_over", environment=job.environment, error=str(error))
        return replace(seen, exit_code=1, detail=f"{BUILD_FAILURE_PREFIX}{error}")
    return seen


def _why(engine: Engine, job: Job, exit_code: int | None) -> str:
    said = read_tool_message(engine, job.id)
    return (job.kind == IMAGE_BUILD_JOB and explain_signature_refusal(said)) or said or f"exit code {exit_code}"


def _clear(home: Home, job: Job, work: str) -> None:
    """What a build that has not come to its end leaves is large, and nobody's."""
    create_environment_folders(home)
    with contextlib.suppress(OSError):
        os.rename(f"{work}/room", home.environments / "trash" / f"{job.attempt_id}.{os.urandom(4).hex()}")


def _take_over(settings: Settings, digest: str, work: str, *, is_shared: bool) -> None:
    """Out of a folder whose owner may still swap what is in it: it is looked at once it is ours alone."""
    create_environment_folders(settings.home)
    ready, taking = (
        environment_folder(str(settings.home.path), digest),
        settings.home.environments / "taking" / digest,
    )
    if not os.path.lexists(taking):
        try:
            _rename_out(work, taking)
        except FileNotFoundError:
            if os.path.isdir(ready):
                return  # it was taken over before a crash
            raise InstallationFailed("the build has left nothing") from None
    found = os.lstat(taking)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.lstat(work).st_uid, os.geteuid()):
        os.rename(taking, settings.home.environments / "trash" / f"{digest}.{os.urandom(4).hex()}")
        raise InstallationFailed("the build has left no folder of its own")
    if is_shared:
        _make_everybodys(str(taking))
    else:
        os.chmod(taking, 0o700)  # everybody can read its name among the words of its owner's processes
    if os.path.lexists(ready):
        move_to_trash(settings.home, digest)
    os.rename(taking, ready)


def _rename_out(work: str, to: Path) -> None:
    try:
        room = open_without_links(work, "room")
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InstallationFailed("the build has left a link") from None
        raise
    try:
        os.rename("env", to, src_dir_fd=room)
    except NotADirectoryError:
        raise InstallationFailed("the build has left no folder") from None
    finally:
        os.close(room)


def _make_everybodys(folder: str) -> None:
    """Readable by all, changeable by none but us. Its builder is gone, with every process that it had."""
    for words in (
        ["chmod", "-R", "u=rwX,go=rX", folder],
        ["chown", "-hR", f"{os.geteuid()}:{os.getegid()}", folder],
    ):
        subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=600)


def create_environment_folders(home: Home) -> None:
    """The folders of the installation: people pass through to what they know the name of."""
    for folder in (home.environments, home.environments / "ready", home.environments / "tools"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)
    for folder in (home.environments / "taking", home.environments / "trash"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)


def move_to_trash(home: Home, digest: str) -> None:
    create_environment_folders(home)
    trash = home.environments / "trash"
    with contextlib.suppress(FileNotFoundError):
        os.rename(environment_folder(str(home.path), digest), trash / f"{digest}.{os.urandom(4).hex()}")


def find_environment_folder(home: Home, digest: str) -> Path | None:
    """Where it is; None: it is not there."""
    folder = Path(environment_folder(str(home.path), digest))
    return folder if folder.is_dir() else None
