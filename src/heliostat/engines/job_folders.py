"""The folder of a job, which its engine lays out and its user owns; uploaded code as its working directory."""

import contextlib
import os
import pwd
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heliostat.config import Home
from heliostat.engines.job_variables import (
    OUTPUT_VALUES_FILE,
    RunAsUser,
    built_image_path,
    job_environment_folder,
    job_workflow_membership,
    workflow_folder,
    workflow_job_folder,
)
from heliostat.models import Attempt, Job, JobId
from heliostat.models.uploads import FileTree, TreeFile, blob_path, text_to_tree, tree_path, user_upload_folder
from heliostat.payloads.archive import resolve_script


class AttemptRefused(Exception):
    """The attempt can never start like this; says why."""


@dataclass(frozen=True, slots=True)
class JobFolder:
    """`jobs/12`: the server's own, so that its entries cannot be swapped; the files in it are the user's."""

    path: str

    @classmethod
    def for_job(cls, jobs: Path, job_id: JobId) -> "JobFolder":
        return cls(f"{jobs}/{job_id}")

    def log_path(self, attempt: int, stream: str) -> str:
        return f"{self.path}/{attempt}.{stream}"

    @property
    def checkpoint_folder(self) -> str:
        return f"{self.path}/checkpoints"


def require_run_as_user(unix_user: str) -> RunAsUser:
    try:
        entry = pwd.getpwnam(unix_user)
    except KeyError:
        raise AttemptRefused(f"this machine has no Unix user {unix_user}") from None
    if os.geteuid() not in (0, entry.pw_uid):
        raise AttemptRefused(f"Heliostat does not run as root here, so it cannot run jobs as {unix_user}")
    return RunAsUser(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell or "/bin/sh")


def prepare_job_folder(
    attempt: Attempt, person: RunAsUser, folder: JobFolder, home: Home
) -> tuple[str, str | None]:
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
        _write(script, resolve_script(spec.script), person, 0o700)
    if workdir is None:
        workdir = f"{folder.path}/work"
        if spec.upload is not None:
            _lay_out_code(attempt.job, home.uploads, workdir, person)
        make_private_folder(workdir, person)
    make_private_folder(folder.checkpoint_folder, person)
    prepare_workflow_folder(attempt.job, str(home.path), person)
    return workdir, script


def _lay_out_code(job: Job, uploads: Path, workdir: str, person: RunAsUser) -> None:
    try:
        copy_upload(uploads, job.user, job.spec.upload or "", workdir, person)
    except UploadMissing as error:
        raise AttemptRefused(f"{error}: submit it again with --upload") from error


def check_environment_exists(job: Job, installation: str) -> None:
    """The environment it runs in must be there. Raises Refused."""
    folder, image = job_environment_folder(job, installation), built_image_path(job, installation)
    if folder is not None and not os.path.isdir(folder):
        raise AttemptRefused("its environment is no longer there; submit the job again to have it built")
    if image is not None and not os.path.isfile(image):
        raise AttemptRefused("its image is no longer there; submit the job again to have it built")


@contextlib.contextmanager
def create_log(path: str, person: RunAsUser) -> Iterator[int]:
    """Its descriptor. FileExistsError when the file is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    try:
        if not _is_us(person):
            os.fchown(descriptor, person.uid, person.gid)
        yield descriptor
    finally:
        os.close(descriptor)


def make_private_folder(path: str, person: RunAsUser) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    if not _is_us(person):
        os.chown(path, person.uid, person.gid, follow_symlinks=False)


def _is_us(person: RunAsUser) -> bool:
    """What we make is theirs already."""
    return (person.uid, person.gid) == (os.geteuid(), os.getegid())


def _write(path: str, content: bytes, person: RunAsUser, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        os.fchown(descriptor, person.uid, person.gid)
        os.fchmod(descriptor, mode)


def prepare_workflow_folder(job: Job, installation: str, person: RunAsUser) -> None:
    """Its folder, which is its user's. Those above are the server's, so that none can be swapped for another.

    Values that an earlier attempt has left are taken away.
    """
    part = job_workflow_membership(job)
    if part is None:
        return
    for folder in (f"{installation}/workflows", workflow_folder(installation, part)):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        os.chmod(folder, 0o711)
    own = workflow_job_folder(installation, part)
    with contextlib.suppress(FileExistsError):
        os.mkdir(own, 0o700)
    os.chown(own, person.uid, person.gid, follow_symlinks=False)
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(f"{own}/{OUTPUT_VALUES_FILE}")


class UploadMissing(Exception):
    """What was uploaded is not there any more."""


def copy_upload(uploads: Path, user: str, upload: str, target: str, person: RunAsUser) -> None:
    """Once: what the job changes there stays for its next attempt. A crash in the middle leaves no half of it.

    While it is being made nobody but the server can reach it. Raises Gone, or OSError.
    """
    if os.path.isdir(target):
        return
    source, draft = user_upload_folder(str(uploads), user), f"{target}.draft"
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(draft)
    try:
        with open(tree_path(source, upload), encoding="utf-8") as file:
            tree = text_to_tree(file.read())
        os.mkdir(draft, 0o700)
        _fill(draft, source, tree, person)
    except FileNotFoundError as error:
        raise UploadMissing("the code that was uploaded for it is not there any more") from error
    os.chown(draft, person.uid, person.gid)
    os.rename(draft, target)


def _fill(draft: str, source: str, tree: FileTree, person: RunAsUser) -> None:
    paths = [*(file.path for file in tree.files), *(link.path for link in tree.links)]
    folders = {part for path in paths for part in _above(path)}
    for folder in sorted(folders):
        _make_folder(f"{draft}/{folder}", person)
    for entry in tree.files:
        _copy(blob_path(source, entry.digest), f"{draft}/{entry.path}", entry, person)
    for link in tree.links:
        os.symlink(link.target, f"{draft}/{link.path}")
        os.chown(f"{draft}/{link.path}", person.uid, person.gid, follow_symlinks=False)


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def _make_folder(path: str, person: RunAsUser) -> None:
    os.mkdir(path)
    os.chmod(path, 0o755)
    os.chown(path, person.uid, person.gid)


def _copy(source: str, target: str, entry: TreeFile, person: RunAsUser) -> None:
    """A copy of its own: what the job writes there must not reach anybody else's."""
    with open(source, "rb") as original, open(target, "xb") as copy:
        if os.fstat(original.fileno()).st_size != entry.size_bytes:
            raise FileNotFoundError(source)
        shutil.copyfileobj(original, copy, 2**20)
        os.fchmod(copy.fileno(), 0o755 if entry.is_executable else 0o644)
        os.fchown(copy.fileno(), person.uid, person.gid)
