"""Installs the results of environment and image builds on disk.

`environments/ready/DIGEST` is created and removed by a rename, so it is never incomplete. The files of a killed
build stay in the folder of its job.
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
from heliostat.engines.job_file_reader import open_without_links
from heliostat.engines.job_variables import environment_folder
from heliostat.models import AttemptEnded, EndCause, Job
from heliostat.models.environments import BUILD_FAILURE_PREFIX, IMAGE_BUILD_JOB, IMAGE_PUSH_JOB, INTERNAL_JOB_KINDS
from heliostat.models.image_failures import explain_signature_refusal
from heliostat.server_log import get_logger

log = get_logger()


class InstallationFailed(Exception):
    """The result of the build is not a valid environment. The message is the reason."""


def install_build_result(settings: Settings, engine: Engine, job: Job, end: AttemptEnded) -> AttemptEnded:
    """The end of a build, after its result was installed; the end of other jobs, unchanged. Idempotent."""
    if job.kind not in INTERNAL_JOB_KINDS or job.environment is None or not isinstance(engine, RunsPrograms):
        return end
    if job.kind == IMAGE_PUSH_JOB:
        return add_image_push_failure(engine, job, end)
    work = engine.work_folder(job.id)
    if end.cause is not EndCause.EXITED or end.exit_code != 0:
        _discard(settings.home, job, work)
    if end.cause is not EndCause.EXITED:
        return end
    if end.exit_code != 0:
        return replace(end, detail=BUILD_FAILURE_PREFIX + _failure_reason(engine, job, end.exit_code))
    try:
        _install(settings, job.environment, work, is_shared=job.unix_user == settings.environments.builder)
    except (OSError, subprocess.SubprocessError, InstallationFailed) as error:
        log.warning("environment_not_installed", environment=job.environment, error=str(error))
        return replace(end, exit_code=1, detail=f"{BUILD_FAILURE_PREFIX}{error}")
    return end


def _failure_reason(engine: Engine, job: Job, exit_code: int | None) -> str:
    message = read_tool_message(engine, job.id)
    return (
        (job.kind == IMAGE_BUILD_JOB and explain_signature_refusal(message)) or message or f"exit code {exit_code}"
    )


def _discard(home: Home, job: Job, work: str) -> None:
    """Move the files of a failed build to the trash: they are large."""
    create_environment_folders(home)
    with contextlib.suppress(OSError):
        os.rename(f"{work}/room", home.environments / "trash" / f"{job.attempt_id}.{os.urandom(4).hex()}")


def _install(settings: Settings, digest: str, work: str, *, is_shared: bool) -> None:
    """The owner of the work folder may still replace its contents, so they are checked after they were moved."""
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
                return  # it was installed before a crash
            raise InstallationFailed("the build created no files") from None
    status = os.lstat(taking)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.lstat(work).st_uid, os.geteuid()):
        os.rename(taking, settings.home.environments / "trash" / f"{digest}.{os.urandom(4).hex()}")
        raise InstallationFailed("the result of the build is not a folder of its user")
    if is_shared:
        _make_shared(str(taking))
    else:
        os.chmod(taking, 0o700)  # other users can read its name in the command lines of its owner's processes
    if os.path.lexists(ready):
        move_to_trash(settings.home, digest)
    os.rename(taking, ready)


def _rename_out(work: str, to: Path) -> None:
    try:
        room = open_without_links(work, "room")
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InstallationFailed("the result of the build is a symbolic link") from None
        raise
    try:
        os.rename("env", to, src_dir_fd=room)
    except NotADirectoryError:
        raise InstallationFailed("the result of the build is not a folder") from None
    finally:
        os.close(room)


def _make_shared(folder: str) -> None:
    """Readable by all users, writable only by the server. The build has ended, with all its processes."""
    for command in (
        ["chmod", "-R", "u=rwX,go=rX", folder],
        ["chown", "-hR", f"{os.geteuid()}:{os.getegid()}", folder],
    ):
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=600)


def create_environment_folders(home: Home) -> None:
    """Users cannot list these folders, but can access entries whose name they know."""
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
    """None: it does not exist."""
    folder = Path(environment_folder(str(home.path), digest))
    return folder if folder.is_dir() else None
