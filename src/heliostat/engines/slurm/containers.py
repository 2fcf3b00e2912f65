"""The part of a job's script that runs it in a container on the node: pure, but for links that are followed.

What is the node's own (folders, GPUs, which tools) is left blank in the words of the runtime and filled in there,
by `containers.sh`. Values of variables are in the script, which only its owner and admins see, never among the
words of a tool or of `srun`, and on no disk that is shared.
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

SIGNAL_TRAP = (
    "heliostat_told=; trap heliostat_told=1 URG"  # before all else: what is told before there is a tool counts
)
_FOLDER = placeholder("heliostat_folder")
_RESET = "$heliostat_reset"  # several words, or none
_LONGEST = 120_000  # of one word or variable, which the kernel passes on
_SWEEP_AFTER_SECONDS, _SWEEP_SECONDS, _SWEEP_EVERY_MINUTES = 2, 300, 60
_CONFIGURATION = ("heliostat_conf", "heliostat_registries")
# Known where it runs, and never secret.
_OF_THE_NODE = {
    "HELIOSTAT_NODE": placeholder("SLURMD_NODENAME"),
    "SLURM_JOB_ID": placeholder("SLURM_JOB_ID"),
    "SLURM_RESTART_COUNT": placeholder("heliostat_restarts"),
    "CUDA_VISIBLE_DEVICES": placeholder("heliostat_uuids"),
    "NVIDIA_VISIBLE_DEVICES": placeholder("heliostat_visible"),
}
_OF_THE_TASK = {
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
    """How it runs, with what `script` needs to know of it."""

    lines: tuple[str, ...]  # that run one task, and set `code`
    sealed_variables: str  # what `lines` find in heliostat_sealed


def check_container(job: Job) -> None:
    """Raises Invalid for what cannot be kept within the limits of Slurm."""
    if not job.spec.uses_container:
        return
    if job.spec.runtime == "docker":
        hint = "Choose --runtime podman or apptainer."
        raise _invalid("docker's daemon would run this outside of Slurm's limits.", hint)
    if starts_own_tasks(job) and job.placement.tasks > 1:
        hint = "Run it without a container, or let srun start the tasks: leave the template out."
        raise _invalid("mpirun in a container does not reach the other nodes of Slurm.", hint)
    if job.spec.runtime == "podman" and job.unix_user == "root":
        hint = "Submit it as somebody else, or choose --isolate."
        raise _invalid("podman of root would run this outside of Slurm's limits.", hint)


def container_base_folder(settings: Settings, person: RunAsUser) -> str:
    """The folder in which containers of this person keep their things on each node."""
    return f"{settings.containers.scratch}/heliostat-{person.uid}"


def signal_to_send(signal: str, spec: JobSpec) -> str:
    """Slurm sends it to every process: the tools that hold a container must not mind; its shell passes it on."""
    return "URG" if signal == "TERM" and spec.uses_container else signal


def make_container_script(
    attempt: Attempt, person: RunAsUser, brought: ContainerInputs, settings: Settings
) -> ContainerScript | None:
    """None: it runs in no container. Raises Refused."""
    check_container_policy(attempt, person, settings)
    if not attempt.job.spec.uses_container:
        return None
    try:
        check_container(attempt.job)
        ways = {
            name: _command(attempt, person, brought, settings, name) for name in _oci_runtimes(attempt, settings)
        }
    except (UnsupportedByRuntime, Invalid) as error:
        raise AttemptRefused(str(error)) from None
    made = ContainerScript(
        tuple(_lines(attempt, container_base_folder(settings, person), ways, settings)),
        shell_lines.octal_escapes(next(iter(ways.values())).sealed_content),
    )
    longest = max(
        len(made.sealed_variables), sum(len(line.encode("utf-8", "surrogateescape")) + 1 for line in made.lines)
    )
    if attempt.job.placement.tasks > 1 and longest > _LONGEST:
        raise AttemptRefused("its words or variables are too long for several tasks in containers on Slurm")
    return made


def _oci_runtimes(attempt: Attempt, settings: Settings) -> Sequence[str]:
    """The one that is set, or those a node may have; the last is for any other."""
    named = settings.containers.oci_runtimes.get(attempt.job.project) or settings.containers.oci_runtime
    if named is not None or attempt.job.spec.runtime != "podman":
        return [named or "runc"]
    return ["crun", "runc"]


def _command(
    attempt: Attempt, person: RunAsUser, brought: ContainerInputs, settings: Settings, oci: str
) -> RuntimeCommand:
    wanted, runtime = (
        attempt.job.resources,
        RUNTIMES[attempt.job.spec.runtime or settings.containers.default_runtime],
    )
    files, processes = placeholder("heliostat_files"), placeholder("heliostat_processes")
    limits = ContainerLimits(wanted.memory_mib, wanted.cpus, settings.queue.pids_limit, files, processes)
    count = round(wanted.gpus)
    place = ContainerIsolation(
        image_store=f"{container_base_folder(settings, person)}/images",
        scratch_folder=f"{_FOLDER}/s",
        runtime_folder=_FOLDER,
        read_only_root=settings.containers.read_only_root,
        oci_runtime=oci,
        device_files=tuple(placeholder(f"heliostat_device{number}") for number in range(count)),
        tool_variables=dict(zip(CONTAINER_CONFIG_FILES, map(placeholder, _CONFIGURATION), strict=True)),
    )
    knowing = replace(brought, variables={**brought.variables, **_OF_THE_NODE})
    whole = make_container_spec(attempt, person, knowing, ContainerContext(settings, limits, place))
    devices = tuple(placeholder(f"heliostat_gpu{number}") for number in range(count))
    return runtime.make_command(replace(_ours_last(attempt, whole), devices=devices))


def _ours_last(attempt: Attempt, whole: ContainerSpec) -> ContainerSpec:
    """What says which task it is, is ours to say."""
    if attempt.job.placement.tasks == 1:
        return whole
    environment = whole.variables
    common = {name: value for name, value in environment.common.items() if name not in _OF_THE_TASK}
    return replace(
        whole, variables=replace(environment, common=common, per_task={**environment.per_task, **_OF_THE_TASK})
    )


def _lines(attempt: Attempt, base: str, ways: Mapping[str, RuntimeCommand], settings: Settings) -> Iterator[str]:
    """Nothing the user has set is a variable of this shell: only of those that become the tools."""
    runtime, any_way = RUNTIMES[attempt.job.spec.runtime or ""], next(iter(ways.values()))
    yield f"export PATH={TOOL_PATH}"
    yield f"heliostat_base={quote(base)} heliostat_restarts=${{SLURM_RESTART_COUNT:-0}}"
    yield 'heliostat_name="$SLURM_JOB_ID.$heliostat_restarts.${SLURM_PROCID:-0}"'
    yield _text()
    yield f"heliostat_needs {runtime.program}"
    yield "heliostat_enter"
    yield "heliostat_look"
    yield f"heliostat_gpus {round(attempt.job.resources.gpus)}"
    yield 'heliostat_visible="${heliostat_uuids:-void}"'
    yield from shell_lines.seal_lines('"$heliostat_sealed"', f"{_FOLDER}/sealed")
    yield "unset heliostat_sealed"
    yield "cd /"
    yield from shell_lines.lock_lines(any_way, 126)
    yield from ["(", *shell_lines.setup_lines(any_way), ") 9>&- || exit 126"]
    yield from _task(ways, any_way)
    yield from _sweep(CleanupPaths(f"{base}/images", f"{base}/images/s"), any_way, settings)
    yield 'heliostat_run "$@"'


def _task(ways: Mapping[str, RuntimeCommand], any_way: RuntimeCommand) -> Iterator[str]:
    yield "heliostat_task() {"
    yield from shell_lines.export_lines(any_way.tool_variables)
    *first, last = ways
    yield "case $heliostat_oci in"
    for name in first:
        yield f"{quote(name)}) {shell_lines.run_line(ways[name], _RESET)} ;;"
    yield f"*) {shell_lines.run_line(ways[last], _RESET)} ;;"
    yield "esac"
    yield "}"


def _sweep(place: CleanupPaths, any_way: RuntimeCommand, settings: Settings) -> Iterator[str]:
    """Beside the task, once it has begun: whoever uses images here removes those of theirs that are due."""
    keep_days, most = settings.containers.keep_days, parse_memory(settings.containers.max_size) * 2**20 or None
    yield "heliostat_sweep() {"
    if any_way.lock_file and (keep_days or most):
        tools = ("PATH", "HOME", *CONTAINER_CONFIG_FILES)
        yield from shell_lines.export_lines({name: any_way.tool_variables[name] for name in tools})
        yield f"sleep {_SWEEP_AFTER_SECONDS}"
        words = image_cleanup_argv(place, keep_days, most, _SWEEP_EVERY_MINUTES)
        yield shell_lines.exec_line(
            ["timeout", "--kill-after=10", str(_SWEEP_SECONDS), "nice", "-n", "19", *words]
        )
    else:
        yield ":"
    yield "}"


def _invalid(message: str, hint: str) -> Invalid:
    return Invalid(message, hint, fields={"runtime": message})


@cache
def _text() -> str:
    return Path(__file__).with_name("containers.sh").read_text(encoding="utf-8").rstrip()
