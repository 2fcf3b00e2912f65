"""Containers on Slurm nodes: the lines of a job's script that run it in a container. Pure, except that it follows
symbolic links.

Values that only the node has (folders, GPUs, installed tools) are placeholders in the runtime's command, which
`containers.sh` fills in there. Values of variables are in the script, which only its owner and admins can read:
never on the command line of a tool or of `srun`, and never on a shared disk.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from shlex import quote

from heliostat.config import Settings
from heliostat.engines.containers import (
    CONTAINER_CONFIG_FILES,
    ContainerContext,
    ContainerInputs,
    check_container_policy,
    make_container_spec,
)
from heliostat.engines.job_folders import AttemptRefused
from heliostat.engines.job_variables import RunAsUser
from heliostat.engines.launch_templates import starts_own_tasks
from heliostat.errors import Invalid
from heliostat.models import Attempt, Job, JobSpec
from heliostat.models.gpu_types import is_slice
from heliostat.models.quantities import parse_memory
from heliostat.runtimes import shell_lines
from heliostat.runtimes.all_runtimes import RUNTIMES
from heliostat.runtimes.contract import (
    TOOL_PATH,
    ContainerIsolation,
    ContainerLimits,
    ContainerSpec,
    RuntimeCommand,
    UnsupportedByRuntime,
)
from heliostat.runtimes.image_stores import CleanupPaths, image_cleanup_argv
from heliostat.runtimes.shell_lines import placeholder

# First of all: a signal that arrives before the tool runs must not be lost.
SIGNAL_TRAP = "heliostat_stopping=; trap heliostat_stopping=1 URG"
_FOLDER = placeholder("heliostat_folder")
_RESET = "$heliostat_reset"  # several words, or none
_MAX_ARGUMENT_BYTES = 120_000  # the kernel's limit for one argument or variable
_CLEANUP_DELAY_SECONDS, _CLEANUP_TIMEOUT_SECONDS, _CLEANUP_INTERVAL_MINUTES = 2, 300, 60
_CONFIGURATION = ("heliostat_conf", "heliostat_registries")
# Known only on the node, and never secret.
_NODE_VARIABLES = {
    "HELIOSTAT_NODE": placeholder("SLURMD_NODENAME"),
    "SLURM_JOB_ID": placeholder("SLURM_JOB_ID"),
    "SLURM_RESTART_COUNT": placeholder("heliostat_restarts"),
    "CUDA_VISIBLE_DEVICES": placeholder("heliostat_uuids"),
    "NVIDIA_VISIBLE_DEVICES": placeholder("heliostat_visible"),
}
_TASK_VARIABLES = {
    "HELIOSTAT_TASK": placeholder("SLURM_PROCID"),
    "HELIOSTAT_TASK_INDEX": placeholder("SLURM_PROCID"),
    "RANK": placeholder("SLURM_PROCID"),
    "LOCAL_RANK": placeholder("SLURM_LOCALID"),
    "HELIOSTAT_TASKS": placeholder("SLURM_NTASKS"),
    "HELIOSTAT_TASK_COUNT": placeholder("SLURM_NTASKS"),
    "HELIOSTAT_TASK_HOSTS": placeholder("heliostat_hosts"),
    "WORLD_SIZE": placeholder("SLURM_NTASKS"),
    "MASTER_ADDR": placeholder("heliostat_address"),
    "MASTER_PORT": placeholder("heliostat_port"),
}


@dataclass(frozen=True, slots=True)
class ContainerScript:
    lines: tuple[str, ...]  # run one task and set `code`
    sealed_variables: str  # value of heliostat_sealed, which `lines` read


def check_container(job: Job) -> None:
    """Raises Invalid for containers that would escape Slurm's limits or cannot get their GPUs."""
    if not job.spec.uses_container:
        return
    if job.spec.runtime == "docker":
        hint = "Use --runtime podman or --runtime apptainer."
        raise _invalid("docker's daemon would run this container outside of Slurm's limits.", hint)
    if starts_own_tasks(job) and job.placement.tasks > 1:
        hint = "Run it without a container, or omit the template: then srun starts the tasks."
        raise _invalid("mpirun in a container cannot start tasks on other Slurm nodes.", hint)
    if job.spec.runtime == "podman" and job.unix_user == "root":
        hint = "Submit it as another user, or use --isolate."
        raise _invalid("podman as root would run this container outside of Slurm's limits.", hint)
    if is_slice(job.resources.gpu_type):
        raise _invalid(
            "Containers cannot use MIG slices on Slurm.", "Run it without a container, or request a GPU."
        )


def container_base_folder(settings: Settings, person: RunAsUser) -> str:
    """The folder for containers of this user on each node."""
    return f"{settings.containers.scratch}/heliostat-{person.uid}"


def signal_to_send(signal: str, spec: JobSpec) -> str:
    """URG instead of TERM for containers: Slurm signals every process, and URG does not end the container's tools.
    The job's shell translates it into TERM for the processes inside."""
    return "URG" if signal == "TERM" and spec.uses_container else signal


def make_container_script(
    attempt: Attempt, person: RunAsUser, inputs: ContainerInputs, settings: Settings
) -> ContainerScript | None:
    """None: the job uses no container. Raises AttemptRefused."""
    check_container_policy(attempt, person, settings)
    if not attempt.job.spec.uses_container:
        return None
    try:
        check_container(attempt.job)
        commands = {
            name: _command(attempt, person, inputs, settings, name) for name in _oci_runtimes(attempt, settings)
        }
    except (UnsupportedByRuntime, Invalid) as error:
        raise AttemptRefused(str(error)) from None
    script = ContainerScript(
        tuple(_lines(attempt, container_base_folder(settings, person), commands, settings)),
        shell_lines.octal_escapes(next(iter(commands.values())).sealed_content),
    )
    longest = max(
        len(script.sealed_variables),
        sum(len(line.encode("utf-8", "surrogateescape")) + 1 for line in script.lines),
    )
    if attempt.job.placement.tasks > 1 and longest > _MAX_ARGUMENT_BYTES:
        raise AttemptRefused("its command or variables are too long for several tasks in containers on Slurm")
    return script


def _oci_runtimes(attempt: Attempt, settings: Settings) -> Sequence[str]:
    """The configured runtime, or those that a node may have; the last one is the fallback."""
    configured = settings.containers.oci_runtimes.get(attempt.job.project) or settings.containers.oci_runtime
    if configured is not None or attempt.job.spec.runtime != "podman":
        return [configured or "runc"]
    return ["crun", "runc"]


def _command(
    attempt: Attempt, person: RunAsUser, inputs: ContainerInputs, settings: Settings, oci: str
) -> RuntimeCommand:
    resources = attempt.job.resources
    runtime = RUNTIMES[attempt.job.spec.runtime or settings.containers.default_runtime]
    files, processes = placeholder("heliostat_files"), placeholder("heliostat_processes")
    limits = ContainerLimits(resources.memory_mib, resources.cpus, settings.queue.pids_limit, files, processes)
    count = round(resources.gpus)
    isolation = ContainerIsolation(
        image_store=f"{container_base_folder(settings, person)}/images",
        scratch_folder=f"{_FOLDER}/s",
        runtime_folder=_FOLDER,
        read_only_root=settings.containers.read_only_root,
        oci_runtime=oci,
        device_files=tuple(placeholder(f"heliostat_device{number}") for number in range(count)),
        tool_variables=dict(zip(CONTAINER_CONFIG_FILES, map(placeholder, _CONFIGURATION), strict=True)),
    )
    node_inputs = replace(inputs, variables={**inputs.variables, **_NODE_VARIABLES})
    spec = make_container_spec(attempt, person, node_inputs, ContainerContext(settings, limits, isolation))
    devices = tuple(placeholder(f"heliostat_gpu{number}") for number in range(count))
    return runtime.make_command(replace(_with_task_variables(attempt, spec), devices=devices))


def _with_task_variables(attempt: Attempt, spec: ContainerSpec) -> ContainerSpec:
    """A user cannot override the variables that identify a task."""
    if attempt.job.placement.tasks == 1:
        return spec
    variables = spec.variables
    common = {name: value for name, value in variables.common.items() if name not in _TASK_VARIABLES}
    per_task = {**variables.per_task, **_TASK_VARIABLES}
    return replace(spec, variables=replace(variables, common=common, per_task=per_task))


def _lines(
    attempt: Attempt, base: str, commands: Mapping[str, RuntimeCommand], settings: Settings
) -> Iterator[str]:
    """This shell has none of the user's variables; only the tools that it starts have them."""
    runtime, any_command = RUNTIMES[attempt.job.spec.runtime or ""], next(iter(commands.values()))
    yield f"export PATH={TOOL_PATH}"
    yield f"heliostat_base={quote(base)} heliostat_restarts=${{SLURM_RESTART_COUNT:-0}}"
    yield 'heliostat_name="$SLURM_JOB_ID.$heliostat_restarts.${SLURM_PROCID:-0}"'
    yield _text()
    yield f"heliostat_check_tool {runtime.program}"
    yield "heliostat_make_folder"
    yield "heliostat_read_node"
    yield f"heliostat_gpus {round(attempt.job.resources.gpus)}"
    yield 'heliostat_visible="${heliostat_uuids:-void}"'
    yield from shell_lines.seal_lines('"$heliostat_sealed"', f"{_FOLDER}/sealed")
    yield "unset heliostat_sealed"
    yield "cd /"
    yield from shell_lines.lock_lines(any_command, 126)
    yield from ["(", *shell_lines.setup_lines(any_command), ") 9>&- || exit 126"]
    yield from _task_function(commands, any_command)
    yield from _cleanup_function(CleanupPaths(f"{base}/images", f"{base}/images/s"), any_command, settings)
    yield 'heliostat_run "$@"'


def _task_function(commands: Mapping[str, RuntimeCommand], any_command: RuntimeCommand) -> Iterator[str]:
    yield "heliostat_task() {"
    yield from shell_lines.export_lines(any_command.tool_variables)
    *first, last = commands
    yield "case $heliostat_oci in"
    for name in first:
        yield f"{quote(name)}) {shell_lines.run_line(commands[name], _RESET)} ;;"
    yield f"*) {shell_lines.run_line(commands[last], _RESET)} ;;"
    yield "esac"
    yield "}"


def _cleanup_function(paths: CleanupPaths, any_command: RuntimeCommand, settings: Settings) -> Iterator[str]:
    """Removes old images of the user, in the background while the task runs."""
    keep_days = settings.containers.keep_days
    max_bytes = parse_memory(settings.containers.max_size) * 2**20 or None
    yield "heliostat_clean_images() {"
    if any_command.lock_file and (keep_days or max_bytes):
        tools = ("PATH", "HOME", *CONTAINER_CONFIG_FILES)
        yield from shell_lines.export_lines({name: any_command.tool_variables[name] for name in tools})
        yield f"sleep {_CLEANUP_DELAY_SECONDS}"
        argv = image_cleanup_argv(paths, keep_days, max_bytes, _CLEANUP_INTERVAL_MINUTES)
        yield shell_lines.exec_line(
            ["timeout", "--kill-after=10", str(_CLEANUP_TIMEOUT_SECONDS), "nice", "-n", "19", *argv]
        )
    else:
        yield ":"
    yield "}"


def _invalid(message: str, hint: str) -> Invalid:
    return Invalid(message, hint, fields={"runtime": message})


@cache
def _text() -> str:
    return Path(__file__).with_name("containers.sh").read_text(encoding="utf-8").rstrip()
