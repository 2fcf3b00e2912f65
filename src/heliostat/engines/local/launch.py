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
from heliostat.engines.containers import check_container_policy
from heliostat.engines.job_folders import JobFolder, check_environment_exists, create_log, prepare_job_folder
from heliostat.engines.job_variables import RunAsUser
from heliostat.engines.local.cgroup_fallback import MARK_VARIABLE
from heliostat.engines.local.cgroups import Cgroup, CgroupLimits
from heliostat.engines.local.claim_files import WrapperClaim
from heliostat.engines.local.containers import ContainerPaths as ContainerPlace
from heliostat.engines.local.containers import make_container_commands, make_tool_variables
from heliostat.engines.local.payload_script import (
    SCRIPT_DESCRIPTOR,
    PayloadContext,
    payload_argv,
    render_payload_script,
)
from heliostat.engines.local.posix_spawn import Program
from heliostat.engines.local.posix_spawn import spawn_program as start_program
from heliostat.engines.local.processes import boot_id
from heliostat.models import Attempt, JobId
from heliostat.runtimes.contract import SEALED_DESCRIPTOR, RuntimeCommand

_WRAPPER = str(Path(__file__).with_name("attempt.sh"))
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C"}
_DEFAULT_SIGNALS = (SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGXFSZ)
_FIRST_FREE_DESCRIPTOR = 20
_FIRST_PORT, _PORTS = 20_000, 10_000  # below those the kernel gives to outgoing connections


@dataclass(frozen=True, slots=True)
class PreparedAttempt:
    """What is to run, as whom, with what at hand."""

    attempt: Attempt
    run_as_user: RunAsUser
    context: PayloadContext
    limit_seconds: int  # 0: none
    container_commands: tuple[RuntimeCommand, ...] = ()  # for each task, of a job in a container


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """What is not the attempt's own."""

    settings: Settings
    process_mark: str
    device_memory_mib: int | None  # of its first device
    container_paths: ContainerPlace


def make_cgroup_limits(attempt: Attempt, queue: QueueSettings) -> CgroupLimits:
    """Those of all its tasks together."""
    wanted, tasks = attempt.job.resources, len(attempt.task_placements)
    return CgroupLimits(wanted.memory_mib * tasks, wanted.cpus * tasks, queue.pids_limit)


def hard_limit_seconds(attempt: Attempt, queue: QueueSettings) -> int:
    """When the wrapper ends it, server or no server; with overtime, only what nobody may exceed. 0: never."""
    limit = attempt.job.time_limit_seconds or 0
    return max(limit, queue.max_time_limit_seconds) if limit and attempt.job.overtime else limit


def prepare_attempt(
    attempt: Attempt, person: RunAsUser, folder: JobFolder, site: LaunchContext
) -> PreparedAttempt:
    """Lay out its files and say what it finds where. Raises Refused."""
    check_container_policy(attempt, person, site.settings)
    check_environment_exists(attempt.job, str(site.settings.home.path))
    workdir, script = prepare_job_folder(attempt, person, folder, site.settings.home)
    places = PayloadContext(
        workdir=workdir,
        script_path=script,
        installation_folder=str(site.settings.home.path),
        process_mark=site.process_mark,
        checkpoint_folder=folder.checkpoint_folder,
        device_memory_mib=site.device_memory_mib,
        rendezvous_port=find_rendezvous_port(attempt.job.id) if attempt.places else None,
        tool_variables=make_tool_variables(attempt, person, site.container_paths),
    )
    limit = hard_limit_seconds(attempt, site.settings.queue)
    if not attempt.job.spec.uses_container:
        return PreparedAttempt(attempt, person, places, limit)
    return PreparedAttempt(
        attempt, person, places, limit, make_container_commands(attempt, person, places, site.container_paths)
    )


def start_wrapper(payload: PreparedAttempt, folder: JobFolder, trace: str, group: Cgroup) -> WrapperClaim:
    """Start the wrapper in a session of its own, its output going to the job's log files."""
    job, person = payload.attempt.job, payload.run_as_user
    argv = [
        *("/bin/sh", _WRAPPER, trace, boot_id(), str(payload.limit_seconds), str(job.spec.grace_seconds)),
        "yes" if payload.container_commands else "",
        " ".join(group.enter_files),
        *payload_argv(person),
    ]
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(create_log(folder.log_path(job.attempt, "stdout"), person))
        err = stack.enter_context(create_log(folder.log_path(job.attempt, "stderr"), person))
        text = render_payload_script(payload.attempt, person, payload.context, payload.container_commands)
        script = _in_memory(text.encode("utf-8", "surrogateescape"), stack)
        descriptors = {1: out, 2: err, SCRIPT_DESCRIPTOR: script}
        if payload.container_commands:
            descriptors[SEALED_DESCRIPTOR] = _in_memory(payload.container_commands[0].sealed_content, stack)
        environment = {
            **_ENVIRONMENT,
            MARK_VARIABLE: payload.context.process_mark,
        }  # so that what it leaves can be found
        return WrapperClaim(start_program(Program(argv, environment, descriptors, _DEFAULT_SIGNALS)))


def find_rendezvous_port(job_id: JobId) -> int:
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
