"""Launch of attempts on this machine: creates their files and starts their wrapper process."""

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
from heliostat.engines.local.containers import ContainerPaths, make_container_commands, make_tool_variables
from heliostat.engines.local.payload_script import (
    SCRIPT_DESCRIPTOR,
    PayloadContext,
    payload_argv,
    render_payload_script,
)
from heliostat.engines.local.posix_spawn import Program, spawn_program
from heliostat.engines.local.processes import boot_id
from heliostat.models import Attempt, JobId
from heliostat.open_files import ORIGINAL_LIMIT_VARIABLE
from heliostat.runtimes.contract import SEALED_DESCRIPTOR, RuntimeCommand

_WRAPPER = str(Path(__file__).with_name("attempt.sh"))
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C"}
_DEFAULT_SIGNALS = (SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGXFSZ)
_FIRST_FREE_DESCRIPTOR = 20
_FIRST_PORT, _PORTS = 20_000, 10_000  # below the ephemeral ports of the kernel


@dataclass(frozen=True, slots=True)
class PreparedAttempt:
    """An attempt that is ready to start."""

    attempt: Attempt
    run_as_user: RunAsUser
    context: PayloadContext
    limit_seconds: int  # 0: none
    container_commands: tuple[RuntimeCommand, ...] = ()  # one for each task; empty: not in a container


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """What does not depend on the attempt alone."""

    settings: Settings
    process_mark: str
    device_memory_mib: int | None  # of its first device
    container_paths: ContainerPaths


def make_cgroup_limits(attempt: Attempt, queue: QueueSettings) -> CgroupLimits:
    """The limits of all tasks together."""
    resources, tasks = attempt.job.resources, len(attempt.task_placements)
    return CgroupLimits(resources.memory_mib * tasks, resources.cpus * tasks, queue.pids_limit)


def hard_limit_seconds(attempt: Attempt, queue: QueueSettings) -> int:
    """The time limit that the wrapper enforces; with overtime, that of the settings. 0: none."""
    limit = attempt.job.time_limit_seconds or 0
    return max(limit, queue.max_time_limit_seconds) if limit and attempt.job.overtime else limit


def prepare_attempt(
    attempt: Attempt, run_as: RunAsUser, folder: JobFolder, launch_context: LaunchContext
) -> PreparedAttempt:
    """Create the attempt's files. Raises AttemptRefused."""
    check_container_policy(attempt, run_as, launch_context.settings)
    check_environment_exists(attempt.job, str(launch_context.settings.home.path))
    workdir, script = prepare_job_folder(attempt, run_as, folder, launch_context.settings.home)
    context = PayloadContext(
        workdir=workdir,
        script_path=script,
        installation_folder=str(launch_context.settings.home.path),
        process_mark=launch_context.process_mark,
        checkpoint_folder=folder.checkpoint_folder,
        device_memory_mib=launch_context.device_memory_mib,
        rendezvous_port=find_rendezvous_port(attempt.job.id) if attempt.places else None,
        tool_variables=make_tool_variables(attempt, run_as, launch_context.container_paths),
    )
    limit = hard_limit_seconds(attempt, launch_context.settings.queue)
    if not attempt.job.spec.uses_container:
        return PreparedAttempt(attempt, run_as, context, limit)
    return PreparedAttempt(
        attempt,
        run_as,
        context,
        limit,
        make_container_commands(attempt, run_as, context, launch_context.container_paths),
    )


def start_wrapper(prepared: PreparedAttempt, folder: JobFolder, claim_path: str, group: Cgroup) -> WrapperClaim:
    """Start the wrapper in a new session, with its output in the job's log files."""
    job, run_as = prepared.attempt.job, prepared.run_as_user
    argv = [
        *("/bin/sh", _WRAPPER, claim_path, boot_id(), str(prepared.limit_seconds), str(job.spec.grace_seconds)),
        "yes" if prepared.container_commands else "",
        " ".join(group.enter_files),
        *payload_argv(run_as),
    ]
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(create_log(folder.log_path(job.attempt, "stdout"), run_as))
        err = stack.enter_context(create_log(folder.log_path(job.attempt, "stderr"), run_as))
        text = render_payload_script(prepared.attempt, run_as, prepared.context, prepared.container_commands)
        script = _in_memory(text.encode("utf-8", "surrogateescape"), stack)
        descriptors = {1: out, 2: err, SCRIPT_DESCRIPTOR: script}
        if prepared.container_commands:
            descriptors[SEALED_DESCRIPTOR] = _in_memory(prepared.container_commands[0].sealed_content, stack)
        environment = {
            **_ENVIRONMENT,
            MARK_VARIABLE: prepared.context.process_mark,  # its processes are found by it
            ORIGINAL_LIMIT_VARIABLE: os.environ.get(ORIGINAL_LIMIT_VARIABLE, ""),
        }
        return WrapperClaim(spawn_program(Program(argv, environment, descriptors, _DEFAULT_SIGNALS)))


def find_rendezvous_port(job_id: JobId) -> int:
    """A port on which the tasks of this job can find each other. Two jobs get different ports as long as fewer
    than 10,000 run."""
    for offset in range(_PORTS):
        port = _FIRST_PORT + (job_id + offset) % _PORTS
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(errno.EADDRINUSE, "no port is free for the rendezvous of its tasks")


def _in_memory(content: bytes, stack: contextlib.ExitStack) -> int:
    """An open file without a name. Its descriptor is above those of the wrapper, so that the wrapper's dup2 calls
    cannot overwrite it."""
    file = os.memfd_create("payload")
    try:
        os.write(file, content)
        descriptor = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_DESCRIPTOR)
    finally:
        os.close(file)
    stack.callback(os.close, descriptor)
    return descriptor
