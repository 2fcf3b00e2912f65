"""Lays out an attempt's files and starts its wrapper."""

import contextlib
import errno
import fcntl
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ

from heliostat.config import QueueSettings, Settings
from heliostat.engines.containers import check_rules
from heliostat.engines.environment import Person
from heliostat.engines.folders import JobFolder, check_software, lay_out, new_log
from heliostat.engines.local.cgroups import Group, Limits
from heliostat.engines.local.containers import Place as ContainerPlace
from heliostat.engines.local.containers import commands_of, tool_rooms
from heliostat.engines.local.processes import boot_id
from heliostat.engines.local.script import SCRIPT_DESCRIPTOR, Places, payload_argv, payload_script
from heliostat.engines.local.spawn import Program
from heliostat.engines.local.spawn import spawn as start_program
from heliostat.engines.local.trace import Claim
from heliostat.engines.local.ungrouped import MARK
from heliostat.models import Attempt, JobId
from heliostat.runtimes.contract import SEALED_DESCRIPTOR, Command

_WRAPPER = str(Path(__file__).with_name("attempt.sh"))
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C"}
_DEFAULT_SIGNALS = (SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGXFSZ)
_FIRST_FREE_DESCRIPTOR = 20
_FIRST_PORT, _PORTS = 20_000, 10_000  # below those the kernel gives to outgoing connections


@dataclass(frozen=True, slots=True)
class Payload:
    """What is to run, as whom, with what at hand."""

    attempt: Attempt
    person: Person
    places: Places
    limit_seconds: int  # 0: none
    commands: tuple[Command, ...] = ()  # for each task, of a job in a container


@dataclass(frozen=True, slots=True)
class Site:
    """What is not the attempt's own."""

    settings: Settings
    mark: str
    device_memory_mib: int | None  # of its first device
    container: ContainerPlace


def limits_of(attempt: Attempt, queue: QueueSettings) -> Limits:
    """Those of all its tasks together."""
    wanted, tasks = attempt.job.resources, len(attempt.task_places)
    return Limits(wanted.memory_mib * tasks, wanted.cpus * tasks, queue.pids_limit)


def hard_limit_seconds(attempt: Attempt, queue: QueueSettings) -> int:
    """When the wrapper ends it, server or no server; with overtime, only what nobody may exceed. 0: never."""
    limit = attempt.job.time_limit_seconds or 0
    return max(limit, queue.max_time_limit_seconds) if limit and attempt.job.overtime else limit


def prepare(attempt: Attempt, person: Person, folder: JobFolder, site: Site) -> Payload:
    """Lay out its files and say what it finds where. Raises Refused."""
    check_rules(attempt, person, site.settings)
    check_software(attempt.job, str(site.settings.home.path))
    workdir, script = lay_out(attempt, person, folder, site.settings.home)
    places = Places(
        workdir=workdir,
        script=script,
        installation=str(site.settings.home.path),
        mark=site.mark,
        checkpoints=folder.checkpoints,
        device_memory_mib=site.device_memory_mib,
        port=free_port(attempt.job.id) if attempt.places else None,
        tool=tool_rooms(attempt, person, site.container),
    )
    limit = hard_limit_seconds(attempt, site.settings.queue)
    if not attempt.job.spec.wants_container:
        return Payload(attempt, person, places, limit)
    return Payload(attempt, person, places, limit, commands_of(attempt, person, places, site.container))


def spawn(payload: Payload, folder: JobFolder, trace: str, group: Group) -> Claim:
    """Start the wrapper in a session of its own, its output going to the job's log files."""
    job, person = payload.attempt.job, payload.person
    argv = [
        *("/bin/sh", _WRAPPER, trace, boot_id(), str(payload.limit_seconds), str(job.spec.grace_seconds)),
        "yes" if payload.commands else "",
        " ".join(group.enter_files),
        *payload_argv(person),
    ]
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(new_log(folder.log(job.attempt, "stdout"), person))
        err = stack.enter_context(new_log(folder.log(job.attempt, "stderr"), person))
        text = payload_script(payload.attempt, person, payload.places, payload.commands)
        script = _in_memory(text.encode("utf-8", "surrogateescape"), stack)
        descriptors = {1: out, 2: err, SCRIPT_DESCRIPTOR: script}
        if payload.commands:
            descriptors[SEALED_DESCRIPTOR] = _in_memory(payload.commands[0].sealed, stack)
        environment = {**_ENVIRONMENT, MARK: payload.places.mark}  # so that what it leaves can be found
        return Claim(start_program(Program(argv, environment, descriptors, _DEFAULT_SIGNALS)))


def free_port(job_id: JobId) -> int:
    """Where the tasks of this job can meet. Those of two jobs differ as long as fewer than ten thousand run."""
    for offset in range(_PORTS):
        port = _FIRST_PORT + (job_id + offset) % _PORTS
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError(errno.EADDRINUSE, "no port is free for its tasks to meet")


def _in_memory(content: bytes, stack: contextlib.ExitStack) -> int:
    """An open file without a name. Above the wrapper's own descriptors: duplicating it would undo itself there."""
    made = os.memfd_create("payload")
    try:
        os.write(made, content)
        descriptor = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_DESCRIPTOR)
    finally:
        os.close(made)
    stack.callback(os.close, descriptor)
    return descriptor
