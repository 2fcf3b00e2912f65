"""The script that starts the payload of an attempt. Pure text; all input is quoted.

The payload reads it from an open descriptor: its environment variables, which may hold secrets, appear neither on
a command line, which all users can read, nor on disk.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from heliostat.engines.job_variables import AttemptContext, RunAsUser, job_variables
from heliostat.engines.launch_templates import launch_prefix, starts_own_tasks, task_hosts_variable
from heliostat.models import Attempt, TaskPlacement
from heliostat.runtimes import shell_lines
from heliostat.runtimes.contract import RuntimeCommand

SCRIPT_DESCRIPTOR = 8  # see attempt.sh
_SCRIPT = f"/proc/self/fd/{SCRIPT_DESCRIPTOR}"


@dataclass(frozen=True, slots=True)
class PayloadContext:
    """Folders, files and values of an attempt."""

    workdir: str
    script_path: str | None  # a copy of the submitted script
    installation_folder: str  # HELIOSTAT_HOME
    process_mark: str  # value of HELIOSTAT_MARK, by which the attempt's processes are found
    checkpoint_folder: str  # outlives the attempt
    device_memory_mib: int | None = None  # of the device, if the attempt has a fraction of one
    rendezvous_port: int | None = None  # on which its tasks find each other
    tool_variables: Mapping[str, str] = field(
        default_factory=dict
    )  # podman's folders, for image builds and pushes


def render_payload_script(
    attempt: Attempt, run_as: RunAsUser, context: PayloadContext, commands: Sequence[RuntimeCommand] = ()
) -> str:
    """`commands`: those that run the tasks in containers."""
    if commands:
        return _container_script(attempt, commands)
    environment = base_variables(attempt, run_as, context) | dict(attempt.job.spec.env)
    run = shell_lines.exec_line(payload_command(attempt, context))
    lines = [
        f"exec {SCRIPT_DESCRIPTOR}<&-",
        "umask 022",
        shell_lines.export_line(environment),
        f"cd -- {shell_lines.quote_word(context.workdir)} || {{",
        "    echo 'heliostat: the working directory cannot be entered' >&2",
        "    exit 126",
        "}",
        *(_gang(attempt, [run] * len(attempt.places)) if starts_each_task(attempt) else [run]),
    ]
    return "\n".join(lines) + "\n"


def payload_command(attempt: Attempt, context: PayloadContext) -> tuple[str, ...]:
    command = attempt.job.spec.command
    words = command if context.script_path is None else (context.script_path, *command)
    return launch_prefix(attempt.job).apply_to(words)


def starts_each_task(attempt: Attempt) -> bool:
    """Whether the engine starts each task."""
    return bool(attempt.places) and not starts_own_tasks(attempt.job)


def _container_script(attempt: Attempt, commands: Sequence[RuntimeCommand]) -> str:
    """The container tools have their own environment."""
    runs = [shell_lines.run_line(command) for command in commands]
    lines = [
        f"exec {SCRIPT_DESCRIPTOR}<&-",
        "umask 022",
        *shell_lines.lock_lines(commands[0], 125),
        *shell_lines.setup_lines(commands[0]),
        *(_gang(attempt, runs) if starts_each_task(attempt) else [runs[0]]),
    ]
    return "\n".join(lines) + "\n"


def base_variables(attempt: Attempt, run_as: RunAsUser, context: PayloadContext) -> dict[str, str]:
    """A clean environment: the variables of a login and those that describe the job, none of the server's own."""
    attempt_context = AttemptContext(context.installation_folder, context.process_mark, context.checkpoint_folder)
    devices = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **_device_variables(attempt.devices)}
    environment = job_variables(attempt, run_as, attempt_context, devices)
    return (
        environment
        | _gpu_fraction_variables(attempt, context)
        | _rendezvous_variables(attempt, context)
        | dict(context.tool_variables)
    )


def task_variables(placement: TaskPlacement, rank: int) -> dict[str, str]:
    """Variables that differ between the tasks of one attempt. All run on this machine."""
    ranks = dict.fromkeys(("HELIOSTAT_TASK", "HELIOSTAT_TASK_INDEX", "RANK", "LOCAL_RANK"), str(rank))
    return {**_device_variables(placement.devices), **ranks}


def payload_argv(run_as: RunAsUser) -> list[str]:
    """The command that the wrapper runs. `.` runs the script in its fork, without starting a shell."""
    if run_as.uid == os.geteuid():
        return [".", _SCRIPT]
    identity = (f"--reuid={run_as.uid}", f"--regid={run_as.gid}", "--init-groups", "--inh-caps=-all")
    return ["exec", "/usr/bin/setpriv", *identity, "/bin/sh", _SCRIPT]


def _device_variables(devices: tuple[str, ...]) -> dict[str, str]:
    uuids = ",".join(devices)
    return {"CUDA_VISIBLE_DEVICES": uuids, "NVIDIA_VISIBLE_DEVICES": uuids or "void"}


def _gpu_fraction_variables(attempt: Attempt, context: PayloadContext) -> dict[str, str]:
    gpus = attempt.job.resources.gpus
    if not 0 < gpus < 1:
        return {}
    memory_mib = int((context.device_memory_mib or 0) * gpus)
    return {"HELIOSTAT_GPU_FRACTION": f"{gpus:g}", "HELIOSTAT_GPU_MEMORY_MIB": str(memory_mib)}


def _rendezvous_variables(attempt: Attempt, context: PayloadContext) -> dict[str, str]:
    if not attempt.places:
        return {}
    tasks = str(len(attempt.places))
    return {
        "HELIOSTAT_TASKS": tasks,
        "HELIOSTAT_TASK_COUNT": tasks,
        **task_hosts_variable(["localhost"] * len(attempt.places)),
        "WORLD_SIZE": tasks,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(context.rendezvous_port),
    }


def _gang(attempt: Attempt, runs: Sequence[str]) -> Iterator[str]:
    """The tasks, each as a case of a shell function, and the pipeline that runs them in parallel."""
    yield f"heliostat_tasks={len(attempt.places)} heliostat_grace={attempt.job.spec.grace_seconds}"
    is_one = len(set(runs)) == 1  # in containers, the command may differ between tasks
    yield "heliostat_task() {"
    yield "    case $1 in"
    for rank, placement in enumerate(attempt.places):
        run = "" if is_one else f"; {runs[rank]}"
        yield f"    {rank}) {'; '.join(shell_lines.export_lines(task_variables(placement, rank)))}{run} ;;"
    yield "    esac"
    if is_one:
        yield f"    {runs[0]}"
    yield "}"
    yield _gang_text()
    ranks = " | ".join(f"heliostat_run {rank}" for rank in range(len(attempt.places)))
    ignore_signals = "trap : TERM INT HUP QUIT USR1 USR2"
    yield f": | {{ {ignore_signals}"  # a pipe by which the watch starts the tasks
    yield "exec 6<>/proc/self/fd/0 </dev/null"
    yield f"{{ {ignore_signals}; {ranks}; }} 3>&1 >&4 | heliostat_watch"
    yield "}"


@cache
def _gang_text() -> str:
    return Path(__file__).with_name("gang.sh").read_text(encoding="utf-8").rstrip()
