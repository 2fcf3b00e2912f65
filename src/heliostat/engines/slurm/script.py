"""From an attempt to the words of `sbatch` and the script it runs: pure, nothing typed by a user reaches a shell
unquoted.

The environment of a job may hold secrets: it is in the script, which Slurm shows to the owner and to admins only,
never on a command line.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from heliostat.engines.environment import Person, Surroundings, job_environment
from heliostat.models import Attempt, Job, Layout

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 64
_FIRST_PORT, _PORTS = 20_000, 10_000
_MARGIN_SECONDS = 60  # the engine keeps the exact limit; Slurm's is for when nobody looks, and counts in minutes

# A task notes its failure before the others are stopped for it: the job ends with the first one's exit code.
_TASK = """\
trap : TERM INT HUP QUIT USR1 USR2
export HELIOSTAT_TASK="$SLURM_PROCID" RANK="$SLURM_PROCID" LOCAL_RANK="$SLURM_LOCALID"
export HELIOSTAT_NODE="$SLURMD_NODENAME" NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-void}"
first=$1
shift
"$@"
code=$?
set -C
[ "$code" = 0 ] || { echo "$code" >"$first"; } 2>/dev/null
exit "$code"
"""


class Unfit(Exception):
    """Slurm cannot do what the job asks for; says what."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the attempt finds its things, on every node alike."""

    workdir: str
    script: str | None  # a copy of the submitted script
    stdout: str
    stderr: str
    begun: str  # a file of the user's: the script writes the number of its Slurm job into it
    tasks: str  # a folder of the user's, for what the tasks of a gang note


@dataclass(frozen=True, slots=True)
class Site:
    """What is not the attempt's own."""

    instance: str  # tells this Heliostat's jobs from all others in Slurm
    as_root: bool
    partition: str | None = None
    account: str | None = None  # of the job's project, if its user has it


def comment_of(instance: str, attempt_id: str) -> str:
    """By which a job is found in Slurm when its number is not known."""
    return f"heliostat:{instance}:{attempt_id}"


def sbatch_argv(attempt: Attempt, person: Person, paths: Paths, site: Site) -> list[str]:
    """The options, each with its value in one word; the script follows on standard input."""
    job = attempt.job
    options = [
        "--parsable",
        f"--job-name={_UNSAFE.sub('_', job.name)[:_LONGEST_NAME] or 'job'}",
        f"--comment={comment_of(site.instance, attempt.id)}",
        "--chdir=/",
        "--input=/dev/null",
        f"--output={_literal(paths.stdout)}",
        f"--error={_literal(paths.stderr)}",
        "--open-mode=append",
        "--no-requeue",
        "--export=NIL",  # NONE would run the user's login scripts on the node
        "--propagate=NONE",  # the limits of the server's own process are not the job's
        *([f"--uid={person.uid}", f"--gid={person.gid}"] if site.as_root else []),
        *([f"--partition={site.partition}"] if site.partition else []),
        *([f"--account={site.account}"] if site.account else []),
        *_size(attempt),
        *_conditions(attempt),
    ]
    return ["sbatch", *options]


def batch_script(attempt: Attempt, person: Person, paths: Paths, around: Surroundings) -> str:
    environment = job_environment(attempt, person, around, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    command = attempt.job.spec.command
    argv = command if paths.script is None else (paths.script, *command)
    lines = [
        "#!/bin/sh",
        f'echo "$SLURM_JOB_ID" >{quote(paths.begun)}',
        "umask 022",
        *_exports(environment),
        'export HELIOSTAT_NODE="$SLURMD_NODENAME" NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-void}"',
        *_exports(attempt.job.spec.env),
        f"cd -- {quote(paths.workdir)} || {{",
        "    echo 'heliostat: the working directory cannot be entered' >&2",
        "    exit 126",
        "}",
        *_run(attempt, [quote(word) for word in argv], paths),
    ]
    return "\n".join(lines) + "\n"


def _run(attempt: Attempt, words: list[str], paths: Paths) -> Iterator[str]:
    tasks = attempt.job.placement.tasks
    if tasks == 1:
        yield f"exec {' '.join(words)}"
        return
    first = quote(f"{paths.tasks}/first")
    yield f"export HELIOSTAT_TASKS={tasks} WORLD_SIZE={tasks} SLURM_EXPORT_ENV=ALL"
    yield 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    yield f"export MASTER_ADDR MASTER_PORT=$(({_FIRST_PORT} + SLURM_JOB_ID % {_PORTS}))"
    yield "trap : TERM INT HUP QUIT USR1 USR2"
    yield f"srun --kill-on-bad-exit=1 --input=none /bin/sh -c {quote(_TASK)} task {first} {' '.join(words)}"
    yield "code=$?"
    yield f"[ ! -s {first} ] || read -r code <{first}"
    yield 'exit "$code"'


def _size(attempt: Attempt) -> Iterator[str]:
    wanted, placement = attempt.job.resources, attempt.job.placement
    if 0 < wanted.gpus < 1:
        raise Unfit("Slurm gives out whole GPUs here, not parts; ask for a whole one: --gpus 1")
    yield f"--ntasks={placement.tasks}"
    yield f"--cpus-per-task={wanted.cpus}"
    kind = f"{_word(wanted.gpu_type, 'GPU type')}:" if wanted.gpu_type else ""
    if placement.tasks > 1 and placement.layout is Layout.PACK:
        yield f"--nodes=1-{placement.tasks}"
        yield f"--mem-per-cpu={math.ceil(wanted.memory_mib / wanted.cpus)}M"
    else:
        yield f"--nodes={placement.tasks}"
        yield f"--mem={wanted.memory_mib}M"
    if wanted.gpus and placement.tasks > 1:
        yield f"--gpus-per-task={kind}{wanted.gpus:.0f}"
    elif wanted.gpus:
        yield f"--gres=gpu:{kind}{wanted.gpus:.0f}"


def _conditions(attempt: Attempt) -> Iterator[str]:
    job = attempt.job
    if (minutes := limit_minutes(job)) is not None:
        yield f"--time={minutes}"
    if job.placement.exclusive:
        yield "--exclusive"
    if job.placement.labels:
        yield f"--constraint={'&'.join(_word(label, 'label') for label in job.placement.labels)}"
    if job.priority_class != "normal":
        yield f"--qos={job.priority_class}"


def limit_minutes(job: Job) -> int | None:
    """The time limit as Slurm is told: rounded up, with the grace, for when no server looks."""
    if job.time_limit_seconds is None or job.overtime:
        return None
    return math.ceil((job.time_limit_seconds + job.spec.grace_seconds + _MARGIN_SECONDS) / 60)


def _word(text: str, what: str) -> str:
    """Slurm gives a meaning to what stands between words: `a100:4`, `fast|slow`."""
    if _UNSAFE.search(text):
        raise Unfit(f"Slurm knows no {what} {text!r}; it may hold letters, digits, dots and dashes")
    return text


def _literal(path: str) -> str:
    """Slurm fills in what follows a percent sign, and drops backslashes."""
    return path.replace("\\", "\\\\").replace("%", "%%")


def _exports(environment: Mapping[str, str]) -> list[str]:
    return [f"export {name}={quote(value)}" for name, value in environment.items()]
