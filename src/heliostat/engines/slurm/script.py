"""From an attempt to the words of `sbatch` and the script it runs: pure, nothing typed by a user reaches a shell
unquoted.

The environment of a job may hold secrets: it is in the script, which Slurm shows to the owner and to admins only,
never on a command line.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote

from heliostat.engines.environment import Person, Surroundings, job_environment
from heliostat.engines.slurm.receipts import begin_lines, end_lines
from heliostat.engines.slurm.terms import UNSAFE, Terms, Unfit, place_of, word
from heliostat.engines.templates import MOST_NAMED_HOSTS, runs_once, start_of
from heliostat.models import Attempt, Layout

_LONGEST_NAME = 64
_FIRST_PORT, _PORTS = 20_000, 10_000
_MARGIN_SECONDS = 60  # the engine keeps the exact limit; Slurm's is for when nobody looks, and counts in minutes

# A task notes its failure before the others are stopped for it: the job ends with the first one's exit code.
_TASK = """\
trap : TERM INT HUP QUIT USR1 USR2
export HELIOSTAT_TASK="$SLURM_PROCID" HELIOSTAT_TASK_INDEX="$SLURM_PROCID"
export RANK="$SLURM_PROCID" LOCAL_RANK="$SLURM_LOCALID"
export HELIOSTAT_NODE="$SLURMD_NODENAME" NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-void}"
first=$1
shift
(exec "$@")
code=$?
set -C
[ "$code" = 0 ] || { echo "$code" >"$first"; } 2>/dev/null
exit "$code"
"""

# Nodes come one a line; `2(x3),1` are the tasks on each.
_HOST_OF_EACH_TASK = """\
BEGIN {
    parts = split(counts, part, ",")
    for (i = 1; i <= parts; i++) {
        times = match(part[i], /x[0-9]+/) ? substr(part[i], RSTART + 1, RLENGTH - 1) : 1
        for (j = 0; j < times; j++) on[++nodes] = part[i] + 0
    }
}
{ for (k = 0; k < on[NR]; k++) { printf "%s%s", comma, $1; comma = "," } }"""


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the attempt finds its things, on every node alike."""

    workdir: str
    script: str | None  # a copy of the submitted script
    stdout: str
    stderr: str
    receipt: str  # a file of the user's: what the script notes of its life
    tasks: str  # a folder of the user's, for what the tasks of a gang note


@dataclass(frozen=True, slots=True)
class Site:
    """What is not the attempt's own."""

    instance: str  # tells this Heliostat's jobs from all others in Slurm
    as_root: bool
    terms: Terms = field(default_factory=Terms)
    longest_seconds: Mapping[str, int] = field(default_factory=dict)  # that a job may run, by partition
    account: str | None = None  # of the job's project, if its user has it


def comment_of(instance: str, attempt_id: str) -> str:
    """By which a job is found in Slurm when its number is not known."""
    return f"heliostat:{instance}:{attempt_id}"


def array_comment_of(instance: str, leader: str) -> str:
    """The same for those submitted as one array: that of the first of them stands for all."""
    return f"{comment_of(instance, leader)}+"


def sbatch_argv(attempt: Attempt, person: Person, paths: Paths, site: Site) -> list[str]:
    """The options, each with its value in one word; the script follows on standard input."""
    own = [
        f"--comment={comment_of(site.instance, attempt.id)}",
        f"--output={_literal(paths.stdout)}",
        f"--error={_literal(paths.stderr)}",
    ]
    return ["sbatch", "--parsable", *own, *common_options(attempt, person, site)]


def common_options(attempt: Attempt, person: Person, site: Site) -> list[str]:
    """What is the same for all elements of an array."""
    return [
        f"--job-name={UNSAFE.sub('_', attempt.job.name)[:_LONGEST_NAME] or 'job'}",
        "--chdir=/",
        "--input=/dev/null",
        "--open-mode=append",
        "--no-requeue",
        "--export=ALL",  # of next to nothing; for any other word slurmd runs the login scripts, for a second
        "--propagate=NONE",  # the limits of the server's own process are not the job's
        *([f"--uid={person.uid}", f"--gid={person.gid}"] if site.as_root else []),
        *([f"--account={site.account}"] if site.account else []),
        *_size(attempt, site.terms),
        *_conditions(attempt, site),
    ]


@dataclass(frozen=True, slots=True)
class Payload:
    """The parts of a script that differ between a single job and an array, in words of the shell."""

    begin: tuple[str, ...]  # lines before all others
    number: str  # its own in Slurm
    receipt: str
    open_logs: tuple[str, ...]  # lines that do, where Slurm does not
    exports: tuple[str, ...]  # lines after our variables
    workdir: str
    script: str | None
    tasks: str


def batch_script(attempt: Attempt, person: Person, paths: Paths, around: Surroundings) -> str:
    payload = Payload(
        begin=(),
        number="$SLURM_JOB_ID",
        receipt=quote(paths.receipt),
        open_logs=(),
        exports=(),
        workdir=quote(paths.workdir),
        script=None if paths.script is None else quote(paths.script),
        tasks=quote(paths.tasks),
    )
    return script_of(attempt, person, around, payload)


def script_of(attempt: Attempt, person: Person, around: Surroundings, payload: Payload) -> str:
    environment = job_environment(attempt, person, around, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    words = [quote(word) for word in attempt.job.spec.command]
    start = start_of(attempt.job)
    words = words if payload.script is None else [payload.script, *words]
    words = [*map(quote, start.words), *words[start.replaces :]]
    lines = [
        "#!/bin/sh",
        *payload.begin,
        *begin_lines(payload.receipt, payload.number),
        *payload.open_logs,
        "umask 022",
        *_exports(environment),
        *payload.exports,
        'export HELIOSTAT_NODE="$SLURMD_NODENAME" NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-void}"',
        *_exports(attempt.job.spec.env),
        f"cd -- {payload.workdir} || {{",
        "    echo 'heliostat: the working directory cannot be entered' >&2",
        "    exit 126",
        "}",
        *_run(attempt, words, payload.tasks),
        *end_lines(payload.receipt),
    ]
    return "\n".join(lines) + "\n"


def _run(attempt: Attempt, words: list[str], folder: str) -> Iterator[str]:
    """Sets `code`. This shell hears what is meant for the job, and stays to note how it ended."""
    tasks = attempt.job.placement.tasks
    if tasks > 1:
        yield from _meeting_point(tasks)
    yield "trap : TERM INT HUP QUIT USR1 USR2"
    if tasks == 1 or runs_once(attempt.job):
        yield f"(exec {' '.join(words)})"  # a program, never one of the shell's own words
        yield "code=$?"
        return
    first = f"{folder}/first"
    yield f"srun --kill-on-bad-exit=1 --input=none /bin/sh -c {quote(_TASK)} task {first} {' '.join(words)}"
    yield "code=$?"
    yield f"[ ! -s {first} ] || read -r code <{first}"


def _meeting_point(tasks: int) -> Iterator[str]:
    """This script runs on the first node: a port nobody uses there is looked for here."""
    count = f"HELIOSTAT_TASKS={tasks} HELIOSTAT_TASK_COUNT={tasks}"
    yield f"export {count} WORLD_SIZE={tasks} SLURM_EXPORT_ENV=ALL"
    yield 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    yield f"MASTER_PORT=$(({_FIRST_PORT} + SLURM_JOB_ID % {_PORTS}))"
    yield """while grep -qi ":$(printf %04X "$MASTER_PORT") " /proc/net/tcp /proc/net/tcp6 2>/dev/null; do"""
    yield "    MASTER_PORT=$((MASTER_PORT + 1))"
    yield "done"
    yield "export MASTER_ADDR MASTER_PORT"
    if tasks <= MOST_NAMED_HOSTS:
        yield 'HELIOSTAT_TASK_HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" |'
        yield f'    awk -v counts="$SLURM_TASKS_PER_NODE" {quote(_HOST_OF_EACH_TASK)})'
        yield "export HELIOSTAT_TASK_HOSTS"


def _size(attempt: Attempt, terms: Terms) -> Iterator[str]:
    wanted, placement = attempt.job.resources, attempt.job.placement
    if 0 < wanted.gpus < 1:
        raise Unfit("Slurm gives out whole GPUs here, not parts; ask for a whole one: --gpus 1")
    yield f"--ntasks={placement.tasks}"
    yield f"--cpus-per-task={wanted.cpus}"
    kind = f"{word(terms.gpu_type(wanted.gpu_type), 'GPU type')}:" if wanted.gpu_type else ""
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


def _conditions(attempt: Attempt, site: Site) -> Iterator[str]:
    job = attempt.job
    place = place_of(job, attempt.data_class, site.terms)
    if place.partition:
        yield f"--partition={place.partition}"
    if (minutes := limit_minutes(attempt, site)) is not None:
        yield f"--time={minutes}"
    if job.placement.exclusive:
        yield "--exclusive"
    if place.features:
        yield f"--constraint={'&'.join(place.features)}"
    if qos := site.terms.qos_of(job.priority_class):
        yield f"--qos={qos}"


def limit_minutes(attempt: Attempt, site: Site) -> int | None:
    """As Slurm is told: more than ours, which is ours to keep, but not more than the partition allows."""
    job = attempt.job
    if job.time_limit_seconds is None or job.overtime:
        return None
    wanted = math.ceil((job.time_limit_seconds + job.spec.grace_seconds + _MARGIN_SECONDS) / 60)
    allowed = site.longest_seconds.get(place_of(job, attempt.data_class, site.terms).partition or "")
    return wanted if allowed is None else max(math.ceil(job.time_limit_seconds / 60), min(wanted, allowed // 60))


def _literal(path: str) -> str:
    """Slurm fills in what follows a percent sign, and drops backslashes."""
    return path.replace("\\", "\\\\").replace("%", "%%")


def _exports(environment: Mapping[str, str]) -> list[str]:
    return [f"export {name}={quote(value)}" for name, value in environment.items()]
