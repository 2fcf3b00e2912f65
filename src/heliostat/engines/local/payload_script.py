"""The script an attempt's payload starts as: pure text, no input reaches a shell unquoted.

It reaches the payload on an open descriptor: the environment in it, which may hold secrets, is neither on a
command line, which everybody can read, nor on the disk.
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
    """Where the attempt finds its things."""

    workdir: str
    script_path: str | None  # a copy of the submitted script
    installation_folder: str  # HELIOSTAT_HOME
    process_mark: str  # tells this attempt's processes from all others on the machine
    checkpoint_folder: str  # a folder that outlives the attempt
    device_memory_mib: int | None = None  # of the device it has a part of
    rendezvous_port: int | None = None  # where its tasks meet
    tool_variables: Mapping[str, str] = field(
        default_factory=dict
    )  # of a script of ours: where podman keeps its things


def render_payload_script(
    attempt: Attempt, person: RunAsUser, places: PayloadContext, commands: Sequence[RuntimeCommand] = ()
) -> str:
    """`commands` are those that run its tasks in containers."""
    if commands:
        return _contained(attempt, commands)
    environment = base_variables(attempt, person, places) | dict(attempt.job.spec.env)
    run = shell_lines.exec_line(payload_command(attempt, places))
    lines = [
        f"exec {SCRIPT_DESCRIPTOR}<&-",
        "umask 022",
        shell_lines.export_line(environment),
        f"cd -- {shell_lines.quote_word(places.workdir)} || {{",
        "    echo 'heliostat: the working directory cannot be entered' >&2",
        "    exit 126",
        "}",
        *(_gang(attempt, [run] * len(attempt.places)) if starts_each_task(attempt) else [run]),
    ]
    return "\n".join(lines) + "\n"


def payload_command(attempt: Attempt, places: PayloadContext) -> tuple[str, ...]:
    command = attempt.job.spec.command
    words = command if places.script_path is None else (places.script_path, *command)
    return launch_prefix(attempt.job).apply_to(words)


def starts_each_task(attempt: Attempt) -> bool:
    """Whether each of its tasks is started by us."""
    return bool(attempt.places) and not starts_own_tasks(attempt.job)


def _contained(attempt: Attempt, commands: Sequence[RuntimeCommand]) -> str:
    """The tools run with an environment of their own."""
    runs = [shell_lines.run_line(command) for command in commands]
    lines = [
        f"exec {SCRIPT_DESCRIPTOR}<&-",
        "umask 022",
        *shell_lines.lock_lines(commands[0], 125),
        *shell_lines.setup_lines(commands[0]),
        *(_gang(attempt, runs) if starts_each_task(attempt) else [runs[0]]),
    ]
    return "\n".join(lines) + "\n"


def base_variables(attempt: Attempt, person: RunAsUser, places: PayloadContext) -> dict[str, str]:
    """A clean environment: nothing of the server's own, what a login gives, and what the job should know."""
    around = AttemptContext(places.installation_folder, places.process_mark, places.checkpoint_folder)
    devices = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **_visible(attempt.devices)}
    environment = job_variables(attempt, person, around, devices)
    return (
        environment
        | _part_of_a_device(attempt, places)
        | _meeting_point(attempt, places)
        | dict(places.tool_variables)
    )


def task_variables(place: TaskPlacement, rank: int) -> dict[str, str]:
    """What differs between the tasks of one attempt. All run on this machine."""
    ranks = dict.fromkeys(("HELIOSTAT_TASK", "HELIOSTAT_TASK_INDEX", "RANK", "LOCAL_RANK"), str(rank))
    return {**_visible(place.devices), **ranks}


def payload_argv(person: RunAsUser) -> list[str]:
    """What the wrapper runs. `.` reads the script into the wrapper's own fork: one program less to start."""
    if person.uid == os.geteuid():
        return [".", _SCRIPT]
    identity = (f"--reuid={person.uid}", f"--regid={person.gid}", "--init-groups", "--inh-caps=-all")
    return ["exec", "/usr/bin/setpriv", *identity, "/bin/sh", _SCRIPT]


def _visible(devices: tuple[str, ...]) -> dict[str, str]:
    uuids = ",".join(devices)
    return {"CUDA_VISIBLE_DEVICES": uuids, "NVIDIA_VISIBLE_DEVICES": uuids or "void"}


def _part_of_a_device(attempt: Attempt, places: PayloadContext) -> dict[str, str]:
    gpus = attempt.job.resources.gpus
    if not 0 < gpus < 1:
        return {}
    memory_mib = int((places.device_memory_mib or 0) * gpus)
    return {"HELIOSTAT_GPU_FRACTION": f"{gpus:g}", "HELIOSTAT_GPU_MEMORY_MIB": str(memory_mib)}


def _meeting_point(attempt: Attempt, places: PayloadContext) -> dict[str, str]:
    if not attempt.places:
        return {}
    tasks = str(len(attempt.places))
    return {
        "HELIOSTAT_TASKS": tasks,
        "HELIOSTAT_TASK_COUNT": tasks,
        **task_hosts_variable(["localhost"] * len(attempt.places)),
        "WORLD_SIZE": tasks,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(places.rendezvous_port),
    }


def _gang(attempt: Attempt, runs: Sequence[str]) -> Iterator[str]:
    """The tasks, each as a case of a function, and the pipeline that runs them side by side."""
    yield f"heliostat_tasks={len(attempt.places)} heliostat_grace={attempt.job.spec.grace_seconds}"
    is_one = len(set(runs)) == 1  # in containers, each task may have a line of its own
    yield "heliostat_task() {"
    yield "    case $1 in"
    for rank, place in enumerate(attempt.places):
        run = "" if is_one else f"; {runs[rank]}"
        yield f"    {rank}) {'; '.join(shell_lines.export_lines(task_variables(place, rank)))}{run} ;;"
    yield "    esac"
    if is_one:
        yield f"    {runs[0]}"
    yield "}"
    yield _gang_text()
    ranks = " | ".join(f"heliostat_run {rank}" for rank in range(len(attempt.places)))
    deaf = "trap : TERM INT HUP QUIT USR1 USR2"
    yield f": | {{ {deaf}"  # a pipe to ourselves, in which the watch gives its word to the tasks
    yield "exec 6<>/proc/self/fd/0 </dev/null"
    yield f"{{ {deaf}; {ranks}; }} 3>&1 >&4 | heliostat_watch"
    yield "}"


@cache
def _gang_text() -> str:
    return Path(__file__).with_name("gang.sh").read_text(encoding="utf-8").rstrip()
