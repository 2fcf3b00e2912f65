"""Lays out an attempt's files and starts its wrapper."""

import contextlib
import errno
import fcntl
import os
import pwd
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from heliostat.config import Settings
from heliostat.engines.local.cgroups import Group, Limits
from heliostat.engines.local.processes import boot_id
from heliostat.engines.local.script import SCRIPT_DESCRIPTOR, Person, Places, payload_argv, payload_script
from heliostat.engines.local.spawn import Program
from heliostat.engines.local.spawn import spawn as start_program
from heliostat.engines.local.trace import Claim
from heliostat.engines.local.ungrouped import MARK
from heliostat.models import Attempt, JobId

_WRAPPER = str(Path(__file__).with_name("attempt.sh"))
_FIRST_PORT, _PORTS = 20_000, 10_000  # below those the kernel gives to outgoing connections
_WRAPPER_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C"}
_DEFAULT_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGCHLD,
    signal.SIGXFSZ,
)


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


@dataclass(frozen=True, slots=True)
class Payload:
    """What is to run, as whom, with what at hand."""

    attempt: Attempt
    person: Person
    places: Places
    limit_seconds: int  # 0: none


@dataclass(frozen=True, slots=True)
class Site:
    """What is not the attempt's own."""

    settings: Settings
    mark: str
    device_memory_mib: int | None  # of its first device


def limits_of(attempt: Attempt, settings: Settings) -> Limits:
    """Those of all its tasks together."""
    wanted, tasks = attempt.job.resources, len(attempt.task_places)
    return Limits(wanted.memory_mib * tasks, wanted.cpus * tasks, settings.pids_limit)


def hard_limit_seconds(attempt: Attempt, settings: Settings) -> int:
    """When the wrapper ends it, server or no server; with overtime, only what nobody may exceed. 0: never."""
    limit = attempt.job.time_limit_seconds or 0
    return max(limit, settings.max_time_limit_seconds) if limit and attempt.job.overtime else limit


def person_of(unix_user: str) -> Person:
    try:
        entry = pwd.getpwnam(unix_user)
    except KeyError:
        raise Refused(f"this machine has no Unix user {unix_user}") from None
    if os.geteuid() not in (0, entry.pw_uid):
        raise Refused(f"Heliostat does not run as root here, so it cannot run jobs as {unix_user}")
    return Person(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell or "/bin/sh")


def prepare(attempt: Attempt, person: Person, folder: JobFolder, site: Site) -> Payload:
    """Lay out its files and say what it finds where."""
    workdir, script = _lay_out(attempt, person, folder)
    places = Places(
        workdir=workdir,
        script=script,
        installation=str(site.settings.home.path),
        mark=site.mark,
        checkpoints=folder.checkpoints,
        device_memory_mib=site.device_memory_mib,
        port=free_port(attempt.job.id) if attempt.places else None,
    )
    return Payload(attempt, person, places, hard_limit_seconds(attempt, site.settings))


def spawn(payload: Payload, folder: JobFolder, trace: str, group: Group) -> Claim:
    """Start the wrapper in a session of its own, its output going to the job's log files."""
    job, person = payload.attempt.job, payload.person
    argv = [
        "/bin/sh",
        _WRAPPER,
        trace,
        boot_id(),
        str(payload.limit_seconds),
        str(job.spec.grace_seconds),
        " ".join(group.enter_files),
        *payload_argv(person, person.uid != os.geteuid()),
    ]
    with contextlib.ExitStack() as stack:
        out, err = (_open_log(folder.log(job.attempt, stream), person, stack) for stream in ("stdout", "stderr"))
        script = _in_memory(payload_script(payload.attempt, person, payload.places), stack)
        program = Program(
            argv=argv,
            environment={**_WRAPPER_ENVIRONMENT, MARK: payload.places.mark},  # so that what it leaves can be found
            descriptors={1: out, 2: err, SCRIPT_DESCRIPTOR: script},
            default_signals=_DEFAULT_SIGNALS,
        )
        pid = start_program(program)
    return Claim(pid)


def free_port(job_id: JobId) -> int:
    """Where the tasks of this job can meet. Those of two jobs differ as long as fewer than ten thousand run."""
    for offset in range(_PORTS):
        port = _FIRST_PORT + (job_id + offset) % _PORTS
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError(errno.EADDRINUSE, "no port is free for its tasks to meet")


def _lay_out(attempt: Attempt, person: Person, folder: JobFolder) -> tuple[str, str | None]:
    """Make what the payload finds on disk: its working directory and its script, and a folder for checkpoints.

    All are the user's alone. What is saved there stays for the next attempt.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder.path)
    os.chmod(folder.path, 0o711)  # always: a crash may have come between the two the last time
    spec = attempt.job.spec
    script, workdir = None, spec.workdir
    if spec.script is not None:
        script = f"{folder.path}/{attempt.job.attempt}.script"
        _write(script, spec.script, person, 0o700)
    if workdir is None:
        workdir = f"{folder.path}/work"
        _make_private(workdir, person)
    _make_private(folder.checkpoints, person)
    return workdir, script


def _make_private(path: str, person: Person) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    os.chown(path, person.uid, person.gid, follow_symlinks=False)


def _in_memory(text: str, stack: contextlib.ExitStack) -> int:
    """An open file without a name. Above the wrapper's own descriptors, or duplicating it would undo itself."""
    made = os.memfd_create("payload")
    try:
        os.write(made, text.encode("utf-8", "surrogateescape"))
        descriptor = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, 20)
    finally:
        os.close(made)
    stack.callback(os.close, descriptor)
    return descriptor


def _open_log(path: str, person: Person, stack: contextlib.ExitStack) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    stack.callback(os.close, descriptor)
    os.fchown(descriptor, person.uid, person.gid)
    return descriptor


def _write(path: str, text: str, person: Person, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        os.fchown(descriptor, person.uid, person.gid)
        os.fchmod(descriptor, mode)
