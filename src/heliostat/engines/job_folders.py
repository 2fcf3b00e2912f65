"""Job folders: creates the folder of a job and copies uploaded code into its working directory."""

import contextlib
import os
import pwd
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heliostat.config import Home
from heliostat.engines.folder_access import ENTER, ENTER_AND_LIST, NONE, grant_folder_access
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
from heliostat.models.environments import IMAGE_BUILD_JOB, IMAGE_PUSH_JOB
from heliostat.models.uploads import FileTree, TreeFile, blob_path, text_to_tree, tree_path, user_upload_folder
from heliostat.payloads.archive import resolve_script
from heliostat.untrusted_folders import remove_folder


class AttemptRefused(Exception):
    """The attempt cannot start; the message is the reason."""


@dataclass(frozen=True, slots=True)
class JobFolder:
    """`jobs/12`: owned by the server, so that its entries cannot be replaced; the files in it are the user's."""

    path: str

    @classmethod
    def for_job(cls, jobs: Path, job_id: JobId) -> "JobFolder":
        return cls(f"{jobs}/{job_id}")

    def log_path(self, attempt: int, stream: str) -> str:
        return f"{self.path}/{attempt}.{stream}"

    @property
    def code_folder(self) -> str:
        """The working directory of jobs that name no other; with the uploaded code."""
        return f"{self.path}/work"

    @property
    def checkpoint_folder(self) -> str:
        return f"{self.path}/checkpoints"


def require_run_as_user(unix_user: str) -> RunAsUser:
    try:
        entry = pwd.getpwnam(unix_user)
    except KeyError:
        raise AttemptRefused(f"the Unix user {unix_user} does not exist on this node") from None
    if os.geteuid() not in (0, entry.pw_uid):
        raise AttemptRefused(f"Heliostat does not run as root, so it cannot run jobs as {unix_user}")
    return RunAsUser(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell or "/bin/sh")


def prepare_job_folder(
    attempt: Attempt, run_as: RunAsUser, folder: JobFolder, home: Home
) -> tuple[str, str | None]:
    """Create the working directory, the script and the checkpoint folder; return the first two.

    All belong to the user alone, and their content stays for the next attempt. Raises AttemptRefused when the
    uploaded code is gone.
    """
    _make_job_folder(attempt.job, folder, run_as)
    spec = attempt.job.spec
    script, workdir = None, spec.workdir
    if spec.script is not None:
        script = f"{folder.path}/{attempt.job.attempt}.script"
        _write(script, resolve_script(spec.script), run_as, 0o700)
    if workdir is None:
        workdir = folder.code_folder
        if spec.upload is not None:
            lay_out_code(attempt.job, run_as, folder, home.uploads)
        make_private_folder(workdir, run_as)
    make_private_folder(folder.checkpoint_folder, run_as)
    prepare_workflow_folder(attempt.job, str(home.path), run_as)
    return workdir, script


def lay_out_code(job: Job, run_as: RunAsUser, folder: JobFolder, uploads: Path) -> None:
    """Copy the job's uploaded code, unless that is done. Raises AttemptRefused or OSError."""
    _make_job_folder(job, folder, run_as)
    try:
        copy_upload(uploads, job.user, job.spec.upload or "", folder.code_folder, run_as)
    except UploadMissing as error:
        raise AttemptRefused(f"{error}: submit it again with --upload") from error


def _make_job_folder(job: Job, folder: JobFolder, run_as: RunAsUser) -> None:
    """Only its user can enter it. With podman everybody can: it prepares containers with user ids of its own."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder.path, 0o700)
    if not _is_server_user(run_as):  # always: the last run may have crashed after mkdir
        uses_podman = job.spec.uses_container or job.kind in (IMAGE_BUILD_JOB, IMAGE_PUSH_JOB)
        grant_folder_access(folder.path, run_as.uid, ENTER, others=ENTER if uses_podman else NONE)


def check_environment_exists(job: Job, installation: str) -> None:
    """The job's environment or image must exist. Raises AttemptRefused."""
    folder, image = job_environment_folder(job, installation), built_image_path(job, installation)
    if folder is not None and not os.path.isdir(folder):
        raise AttemptRefused("its environment no longer exists; submit the job again to build it")
    if image is not None and not os.path.isfile(image):
        raise AttemptRefused("its image no longer exists; submit the job again to build it")


@contextlib.contextmanager
def create_log(path: str, run_as: RunAsUser) -> Iterator[int]:
    """Create the log file; yields its descriptor. Raises FileExistsError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    try:
        if not _is_server_user(run_as):
            os.fchown(descriptor, run_as.uid, run_as.gid)
        yield descriptor
    finally:
        os.close(descriptor)


def make_private_folder(path: str, run_as: RunAsUser) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    if not _is_server_user(run_as):
        os.chown(path, run_as.uid, run_as.gid, follow_symlinks=False)


def _is_server_user(run_as: RunAsUser) -> bool:
    """Whether files that the server creates belong to this user already."""
    return (run_as.uid, run_as.gid) == (os.geteuid(), os.getegid())


def _write(path: str, content: bytes, run_as: RunAsUser, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        os.fchown(descriptor, run_as.uid, run_as.gid)
        os.fchmod(descriptor, mode)


def prepare_workflow_folder(job: Job, installation: str, run_as: RunAsUser) -> None:
    """Create the job's output folder, owned by its user. The folders above belong to the server, so that no entry
    can be replaced; the user can list that of the workflow.

    Removes output values of an earlier attempt.
    """
    part = job_workflow_membership(job)
    if part is None:
        return
    top, shared = f"{installation}/workflows", workflow_folder(installation, part)
    for folder in (top, shared):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    os.chmod(top, 0o711)
    if not _is_server_user(run_as):
        grant_folder_access(shared, run_as.uid, ENTER_AND_LIST, others=ENTER)
    own = workflow_job_folder(installation, part)
    with contextlib.suppress(FileExistsError):
        os.mkdir(own, 0o700)
    os.chown(own, run_as.uid, run_as.gid, follow_symlinks=False)
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(f"{own}/{OUTPUT_VALUES_FILE}")


class UploadMissing(Exception):
    """The uploaded code no longer exists."""


def copy_upload(uploads: Path, user: str, upload: str, target: str, run_as: RunAsUser) -> None:
    """Copy the uploaded code to `target`, unless it exists: changes made by the job stay for its next attempt.

    The copy is made in a draft folder that only the server can enter, and renamed when it is complete. Raises
    UploadMissing or OSError.
    """
    if os.path.isdir(target):
        return
    source, draft = user_upload_folder(str(uploads), user), f"{target}.draft"
    remove_folder(draft)
    try:
        with open(tree_path(source, upload), encoding="utf-8") as file:
            tree = text_to_tree(file.read())
        os.mkdir(draft, 0o700)
        _fill(draft, source, tree, run_as)
    except FileNotFoundError as error:
        raise UploadMissing("its uploaded code no longer exists") from error
    os.chown(draft, run_as.uid, run_as.gid)
    os.rename(draft, target)


def _fill(draft: str, source: str, tree: FileTree, run_as: RunAsUser) -> None:
    paths = [*(file.path for file in tree.files), *(link.path for link in tree.links)]
    folders = {part for path in paths for part in _parent_folders(path)}
    for folder in sorted(folders):
        _make_folder(f"{draft}/{folder}", run_as)
    for entry in tree.files:
        _copy(blob_path(source, entry.digest), f"{draft}/{entry.path}", entry, run_as)
    for link in tree.links:
        os.symlink(link.target, f"{draft}/{link.path}")
        os.chown(f"{draft}/{link.path}", run_as.uid, run_as.gid, follow_symlinks=False)


def _parent_folders(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def _make_folder(path: str, run_as: RunAsUser) -> None:
    os.mkdir(path)
    os.chmod(path, 0o755)
    os.chown(path, run_as.uid, run_as.gid)


def _copy(source: str, target: str, entry: TreeFile, run_as: RunAsUser) -> None:
    """A real copy, not a link: what the job writes must not change the upload."""
    with open(source, "rb") as original, open(target, "xb") as copy:
        if os.fstat(original.fileno()).st_size != entry.size_bytes:
            raise FileNotFoundError(source)
        shutil.copyfileobj(original, copy, 2**20)
        os.fchmod(copy.fileno(), 0o755 if entry.is_executable else 0o644)
        os.fchown(copy.fileno(), run_as.uid, run_as.gid)
