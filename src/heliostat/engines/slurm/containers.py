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
from heliostat.engines.containers import CONFIGURATION, Belongings, Ground, check_rules, container_of
from heliostat.engines.environment import Person
from heliostat.engines.folders import Refused
from heliostat.engines.templates import runs_once
from heliostat.errors import Invalid
from heliostat.models import Attempt, Job, JobSpec
from heliostat.models.quantities import parse_memory
from heliostat.runtimes import shell
from heliostat.runtimes.catalogue import RUNTIMES
from heliostat.runtimes.contract import TOOL_PATH, CannotContain, Command, Confinement, Container, Limits
from heliostat.runtimes.image_stores import Sweeping, sweep_words
from heliostat.runtimes.shell import blank

EARS = "heliostat_told=; trap heliostat_told=1 URG"  # before all else: what is told before there is a tool counts
_FOLDER = blank("heliostat_folder")
_RESET = "$heliostat_reset"  # several words, or none
_LONGEST = 120_000  # of one word or variable, which the kernel passes on
_SWEEP_AFTER_SECONDS, _SWEEP_SECONDS, _SWEEP_EVERY_MINUTES = 2, 300, 60
_CONFIGURATION = ("heliostat_conf", "heliostat_registries")
# Known where it runs, and never secret.
_OF_THE_NODE = {
    "HELIOSTAT_NODE": blank("SLURMD_NODENAME"),
    "SLURM_JOB_ID": blank("SLURM_JOB_ID"),
    "SLURM_RESTART_COUNT": blank("heliostat_restarts"),
    "CUDA_VISIBLE_DEVICES": blank("heliostat_uuids"),
    "NVIDIA_VISIBLE_DEVICES": blank("heliostat_visible"),
}
_OF_THE_TASK = {
    "HELIOSTAT_TASK": blank("SLURM_PROCID"),
    "HELIOSTAT_TASK_INDEX": blank("SLURM_PROCID"),
    "RANK": blank("SLURM_PROCID"),
    "LOCAL_RANK": blank("SLURM_LOCALID"),
    "HELIOSTAT_TASKS": blank("SLURM_NTASKS"),
    "HELIOSTAT_TASK_COUNT": blank("SLURM_NTASKS"),
    "HELIOSTAT_TASK_HOSTS": blank("heliostat_hosts"),
    "WORLD_SIZE": blank("SLURM_NTASKS"),
    "MASTER_ADDR": blank("heliostat_address"),
    "MASTER_PORT": blank("heliostat_port"),
}


@dataclass(frozen=True, slots=True)
class Contained:
    """How it runs, with what `script` needs to know of it."""

    lines: tuple[str, ...]  # that run one task, and set `code`
    sealed: str  # what `lines` find in heliostat_sealed


def check_container(job: Job) -> None:
    """Raises Invalid for what cannot be kept within the limits of Slurm."""
    if not job.spec.wants_container:
        return
    if job.spec.runtime == "docker":
        hint = "Choose --runtime podman or apptainer."
        raise _invalid("docker's daemon would run this outside of Slurm's limits.", hint)
    if runs_once(job) and job.placement.tasks > 1:
        hint = "Run it without a container, or let srun start the tasks: leave the template out."
        raise _invalid("mpirun in a container does not reach the other nodes of Slurm.", hint)
    if job.spec.runtime == "podman" and job.unix_user == "root":
        hint = "Submit it as somebody else, or choose --isolate."
        raise _invalid("podman of root would run this outside of Slurm's limits.", hint)


def container_base(settings: Settings, person: Person) -> str:
    """The folder in which containers of this person keep their things on each node."""
    return f"{settings.containers.scratch}/heliostat-{person.uid}"


def heard_as(signal: str, spec: JobSpec) -> str:
    """Slurm sends it to every process: the tools that hold a container must not mind; its shell passes it on."""
    return "URG" if signal == "TERM" and spec.wants_container else signal


def contained(attempt: Attempt, person: Person, brought: Belongings, settings: Settings) -> Contained | None:
    """None: it runs in no container. Raises Refused."""
    check_rules(attempt, person, settings)
    if not attempt.job.spec.wants_container:
        return None
    try:
        check_container(attempt.job)
        ways = {
            name: _command(attempt, person, brought, settings, name) for name in _oci_runtimes(attempt, settings)
        }
    except (CannotContain, Invalid) as error:
        raise Refused(str(error)) from None
    made = Contained(
        tuple(_lines(attempt, container_base(settings, person), ways, settings)),
        shell.octal(next(iter(ways.values())).sealed),
    )
    longest = max(len(made.sealed), sum(len(line.encode("utf-8", "surrogateescape")) + 1 for line in made.lines))
    if attempt.job.placement.tasks > 1 and longest > _LONGEST:
        raise Refused("its words or variables are too long for several tasks in containers on Slurm")
    return made


def _oci_runtimes(attempt: Attempt, settings: Settings) -> Sequence[str]:
    """The one that is set, or those a node may have; the last is for any other."""
    named = settings.containers.oci_runtimes.get(attempt.job.project) or settings.containers.oci_runtime
    if named is not None or attempt.job.spec.runtime != "podman":
        return [named or "runc"]
    return ["crun", "runc"]


def _command(attempt: Attempt, person: Person, brought: Belongings, settings: Settings, oci: str) -> Command:
    wanted, runtime = (
        attempt.job.resources,
        RUNTIMES[attempt.job.spec.runtime or settings.containers.default_runtime],
    )
    files, processes = blank("heliostat_files"), blank("heliostat_processes")
    limits = Limits(wanted.memory_mib, wanted.cpus, settings.queue.pids_limit, files, processes)
    count = round(wanted.gpus)
    place = Confinement(
        store=f"{container_base(settings, person)}/images",
        scratch=f"{_FOLDER}/s",
        run=_FOLDER,
        read_only_root=settings.containers.read_only_root,
        oci_runtime=oci,
        device_files=tuple(blank(f"heliostat_device{number}") for number in range(count)),
        tool_environment=dict(zip(CONFIGURATION, map(blank, _CONFIGURATION), strict=True)),
    )
    knowing = replace(brought, variables={**brought.variables, **_OF_THE_NODE})
    whole = container_of(attempt, person, knowing, Ground(settings, limits, place))
    devices = tuple(blank(f"heliostat_gpu{number}") for number in range(count))
    return runtime.command(replace(_ours_last(attempt, whole), devices=devices))


def _ours_last(attempt: Attempt, whole: Container) -> Container:
    """What says which task it is, is ours to say."""
    if attempt.job.placement.tasks == 1:
        return whole
    environment = whole.environment
    common = {name: value for name, value in environment.common.items() if name not in _OF_THE_TASK}
    return replace(
        whole, environment=replace(environment, common=common, of_task={**environment.of_task, **_OF_THE_TASK})
    )


def _lines(attempt: Attempt, base: str, ways: Mapping[str, Command], settings: Settings) -> Iterator[str]:
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
    yield from shell.seal('"$heliostat_sealed"', f"{_FOLDER}/sealed")
    yield "unset heliostat_sealed"
    yield "cd /"
    yield from shell.hold(any_way, 126)
    yield from ["(", *shell.prelude(any_way), ") 9>&- || exit 126"]
    yield from _task(ways, any_way)
    yield from _sweep(Sweeping(f"{base}/images", f"{base}/images/s"), any_way, settings)
    yield 'heliostat_run "$@"'


def _task(ways: Mapping[str, Command], any_way: Command) -> Iterator[str]:
    yield "heliostat_task() {"
    yield from shell.exports(any_way.environment)
    *first, last = ways
    yield "case $heliostat_oci in"
    for name in first:
        yield f"{quote(name)}) {shell.run(ways[name], _RESET)} ;;"
    yield f"*) {shell.run(ways[last], _RESET)} ;;"
    yield "esac"
    yield "}"


def _sweep(place: Sweeping, any_way: Command, settings: Settings) -> Iterator[str]:
    """Beside the task, once it has begun: whoever uses images here removes those of theirs that are due."""
    keep_days, most = settings.containers.keep_days, parse_memory(settings.containers.max_size) * 2**20 or None
    yield "heliostat_sweep() {"
    if any_way.holds and (keep_days or most):
        tools = ("PATH", "HOME", *CONFIGURATION)
        yield from shell.exports({name: any_way.environment[name] for name in tools})
        yield f"sleep {_SWEEP_AFTER_SECONDS}"
        words = sweep_words(place, keep_days, most, _SWEEP_EVERY_MINUTES)
        yield shell.become(["timeout", "--kill-after=10", str(_SWEEP_SECONDS), "nice", "-n", "19", *words])
    else:
        yield ":"
    yield "}"


def _invalid(message: str, hint: str) -> Invalid:
    return Invalid(message, hint, fields={"runtime": message})


@cache
def _text() -> str:
    return Path(__file__).with_name("containers.sh").read_text(encoding="utf-8").rstrip()
