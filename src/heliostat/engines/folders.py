"""The folder of a job, which its engine lays out and its user owns."""

import contextlib
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heliostat.config import Home
from heliostat.engines.environment import (
    VALUES_FILE,
    Person,
    own_folder,
    own_image,
    own_software,
    workflow_folder,
    workflow_part,
)
from heliostat.engines.uploads import Gone, lay_out_upload
from heliostat.models import Attempt, Job, JobId
from heliostat.payloads.archive import script_content


class Refused(Exception):
    """The attempt can never start like this; says why."""


@dataclass(frozen=True, slots=True)
class JobFolder:
    """`jobs/12`: the server's own, so that its entries cannot be swapped; the files in it are the user's."""

    path: str

    @classmethod
    def of(cls, jobs: Path, job_id: JobId) -> "JobFolder":
        return cls(f"{jobs}/{job_id}")

    def log(self, attempt: int, stream: str) -> str:
        return f"{self.path}/{attempt}.{stream}"

    @property
    def checkpoints(self) -> str:
        return f"{self.path}/checkpoints"


def person_of(unix_user: str) -> Person:
    try:
        entry = pwd.getpwnam(unix_user)
    except KeyError:
        raise Refused(f"this machine has no Unix user {unix_user}") from None
    if os.geteuid() not in (0, entry.pw_uid):
        raise Refused(f"Heliostat does not run as root here, so it cannot run jobs as {unix_user}")
    return Person(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell or "/bin/sh")


def lay_out(attempt: Attempt, person: Person, folder: JobFolder, home: Home) -> tuple[str, str | None]:
    """Make what the payload finds on disk: its working directory and its script, and a folder for checkpoints.

    All are the user's alone. What is saved there stays for the next attempt. Raises Refused when its uploaded code
    is gone.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder.path, 0o700)
    if not _is_us(person):
        os.chmod(folder.path, 0o711)  # always: a crash may have come between the two the last time
    spec = attempt.job.spec
    script, workdir = None, spec.workdir
    if spec.script is not None:
        script = f"{folder.path}/{attempt.job.attempt}.script"
        _write(script, script_content(spec.script), person, 0o700)
    if workdir is None:
        workdir = f"{folder.path}/work"
        if spec.upload is not None:
            _lay_out_code(attempt.job, home.uploads, workdir, person)
        make_private(workdir, person)
    make_private(folder.checkpoints, person)
    lay_out_workflow(attempt.job, str(home.path), person)
    return workdir, script


def _lay_out_code(job: Job, uploads: Path, workdir: str, person: Person) -> None:
    try:
        lay_out_upload(uploads, job.user, job.spec.upload or "", workdir, person)
    except Gone as error:
        raise Refused(f"{error}: submit it again with --upload") from error


def check_software(job: Job, installation: str) -> None:
    """The environment it runs in must be there. Raises Refused."""
    folder, image = own_software(job, installation), own_image(job, installation)
    if folder is not None and not os.path.isdir(folder):
        raise Refused("its environment is no longer there; submit the job again to have it built")
    if image is not None and not os.path.isfile(image):
        raise Refused("its image is no longer there; submit the job again to have it built")


@contextlib.contextmanager
def new_log(path: str, person: Person) -> Iterator[int]:
    """Its descriptor. FileExistsError when the file is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    try:
        if not _is_us(person):
            os.fchown(descriptor, person.uid, person.gid)
        yield descriptor
    finally:
        os.close(descriptor)


def make_private(path: str, person: Person) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    if not _is_us(person):
        os.chown(path, person.uid, person.gid, follow_symlinks=False)


def _is_us(person: Person) -> bool:
    """What we make is theirs already."""
    return (person.uid, person.gid) == (os.geteuid(), os.getegid())


def _write(path: str, content: bytes, person: Person, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        os.fchown(descriptor, person.uid, person.gid)
        os.fchmod(descriptor, mode)


def lay_out_workflow(job: Job, installation: str, person: Person) -> None:
    """Its folder, which is its user's. Those above are the server's, so that none can be swapped for another.

    Values that an earlier attempt has left are taken away.
    """
    part = workflow_part(job)
    if part is None:
        return
    for folder in (f"{installation}/workflows", workflow_folder(installation, part)):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        os.chmod(folder, 0o711)
    own = own_folder(installation, part)
    with contextlib.suppress(FileExistsError):
        os.mkdir(own, 0o700)
    os.chown(own, person.uid, person.gid, follow_symlinks=False)
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(f"{own}/{VALUES_FILE}")
