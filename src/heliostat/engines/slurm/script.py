"""From an attempt to the words of `sbatch` and the script it runs: pure, nothing typed by a user reaches a shell
unquoted.

The environment of a job may hold secrets: it is in the script, which Slurm shows to the owner and to admins only,
never on a command line.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote

from heliostat.engines.job_variables import AttemptContext, RunAsUser, job_variables
from heliostat.engines.launch_templates import MAX_LISTED_HOSTS, launch_prefix, starts_own_tasks
from heliostat.engines.slurm.containers import SIGNAL_TRAP, ContainerScript
from heliostat.engines.slurm.journal import ALREADY_STARTED_EXIT_CODE
from heliostat.engines.slurm.mapping import (
    UNSAFE_CHARACTERS,
    NameMapping,
    UnsupportedRequest,
    choose_partition,
    require_safe_word,
)
from heliostat.models import Attempt, TaskLayout
from heliostat.runtimes.contract import TOOL_PATH

_LONGEST_NAME = 64
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
# The same in a container; of those that were told to go none ends the others before they have saved their work.
_NOTE = """\
set -C
[ "$code" = 0 ] || { echo "$code $heliostat_full" >"$0"; } 2>/dev/null
[ -z "$heliostat_told" ] || exit 0
exit "$code"
"""
# Slurm tells the batch shell, not the tasks on other nodes.
_RELAY = """\
trap 'heliostat_told=1; scancel --signal=URG "$SLURM_JOB_ID"' URG
trap : TERM INT HUP QUIT USR1 USR2
[ -z "$heliostat_told" ] || exit 143
"""
_WAIT = """\
heliostat_srun=$!
while :; do
    wait "$heliostat_srun"
    code=$?
    if [ "$code" -le 128 ] || ! kill -s 0 "$heliostat_srun" 2>/dev/null; then break; fi # else only a signal came
done"""
_HOSTNAMES = 'scontrol show hostnames "$SLURM_JOB_NODELIST"'
_FIRST_PORT, _PORTS = 20_000, 10_000
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
class AttemptPaths:
    """Where the attempt finds its things, on every node alike."""

    workdir: str
    script: str | None  # a copy of the submitted script
    stdout: str
    stderr: str
    receipt: str  # a file of the user's: what the script notes of its life
    tasks_folder: str  # a folder of the user's, for what the tasks of a gang note


@dataclass(frozen=True, slots=True)
class SubmissionContext:
    """What is not the attempt's own."""

    instance: str  # tells this Heliostat's jobs from all others in Slurm
    runs_as_root: bool
    name_mapping: NameMapping = field(default_factory=NameMapping)
    max_run_seconds: Mapping[str, int] = field(default_factory=dict)  # that a job may run, by partition
    account: str | None = None  # of the job's project, if its user has it


def attempt_comment(instance: str, attempt_id: str) -> str:
    """By which a job is found in Slurm when its number is not known."""
    return f"heliostat:{instance}:{attempt_id}"


def array_comment(instance: str, leader: str) -> str:
    """The same for those submitted as one array: that of the first of them stands for all."""
    return f"{attempt_comment(instance, leader)}+"


def sbatch_argv(attempt: Attempt, person: RunAsUser, paths: AttemptPaths, site: SubmissionContext) -> list[str]:
    """The options, each with its value in one word; the script follows on standard input."""
    own = [
        f"--comment={attempt_comment(site.instance, attempt.id)}",
        f"--output={_literal(paths.stdout)}",
        f"--error={_literal(paths.stderr)}",
    ]
    return ["sbatch", "--parsable", *own, *common_sbatch_options(attempt, person, site)]


def common_sbatch_options(attempt: Attempt, person: RunAsUser, site: SubmissionContext) -> list[str]:
    """What is the same for all elements of an array."""
    return [
        f"--job-name={UNSAFE_CHARACTERS.sub('_', attempt.job.name)[:_LONGEST_NAME] or 'job'}",
        "--chdir=/",
        "--input=/dev/null",
        "--open-mode=append",
        "--no-requeue",
        "--export=ALL",  # of next to nothing; for any other word slurmd runs the login scripts, for a second
        "--propagate=NONE",  # the limits of the server's own process are not the job's
        *([f"--uid={person.uid}", f"--gid={person.gid}"] if site.runs_as_root else []),
        *([f"--account={site.account}"] if site.account else []),
        *_size(attempt, site.name_mapping),
        *_conditions(attempt, site),
    ]


@dataclass(frozen=True, slots=True)
class ScriptParts:
    """The parts of a script that differ between a single job and an array, in words of the shell."""

    setup_lines: tuple[str, ...]  # lines before all others
    slurm_job_id: str  # its own in Slurm
    receipt: str
    open_log_lines: tuple[str, ...]  # lines that do, where Slurm does not
    export_lines: tuple[str, ...]  # lines after our variables
    workdir: str
    script: str | None
    tasks_folder: str
    container_script: ContainerScript | None = None  # how it runs in a container
    command_offset: int | None = None  # after so many, the positional parameters are what it runs


def render_batch_script(
    attempt: Attempt,
    person: RunAsUser,
    paths: AttemptPaths,
    around: AttemptContext,
    contained: ContainerScript | None = None,
) -> str:
    payload = ScriptParts(
        setup_lines=(),
        slurm_job_id="$SLURM_JOB_ID",
        receipt=quote(paths.receipt),
        open_log_lines=(),
        export_lines=(),
        workdir=quote(paths.workdir),
        script=None if paths.script is None else quote(paths.script),
        tasks_folder=quote(paths.tasks_folder),
        container_script=contained,
    )
    return render_script(attempt, person, around, payload)


def render_script(attempt: Attempt, person: RunAsUser, around: AttemptContext, payload: ScriptParts) -> str:
    inner = payload.container_script
    lines = [
        "#!/bin/sh",
        *([SIGNAL_TRAP] if inner else []),
        *payload.setup_lines,
        *start_receipt_lines(payload.receipt, payload.slurm_job_id),
        *payload.open_log_lines,
        "umask 022",
        *(_contained(attempt, inner, payload.tasks_folder) if inner else _plain(attempt, person, around, payload)),
        *end_receipt_lines(payload.receipt, contained=inner is not None),
    ]
    return "\n".join(lines) + "\n"


def _plain(attempt: Attempt, person: RunAsUser, around: AttemptContext, payload: ScriptParts) -> Iterator[str]:
    yield from _exports(job_variables(attempt, person, around, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}))
    yield from payload.export_lines
    yield 'export HELIOSTAT_NODE="$SLURMD_NODENAME" NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-void}"'
    yield from _exports(attempt.job.spec.env)
    yield f"cd -- {payload.workdir} || {{"
    yield "    echo 'heliostat: the working directory cannot be entered' >&2"
    yield "    exit 126"
    yield "}"
    if payload.command_offset is not None:
        yield from _run(attempt, ['"$@"'], payload.tasks_folder, first=f"shift {payload.command_offset}; ")
        return
    words = [quote(word) for word in attempt.job.spec.command]
    words, start = words if payload.script is None else [payload.script, *words], launch_prefix(attempt.job)
    yield from _run(attempt, [*map(quote, start.argv), *words[start.replaced_word_count :]], payload.tasks_folder)


def _contained(attempt: Attempt, inner: ContainerScript, folder: str) -> Iterator[str]:
    """Sets `code`. Each task is a shell of its own, which holds its container."""
    yield f"heliostat_sealed={quote(inner.sealed_variables)}"
    if attempt.job.placement.tasks == 1:
        yield from inner.lines
        return
    first = f"{folder}/first"
    yield f"export PATH={TOOL_PATH} SLURM_EXPORT_ENV=ALL heliostat_sealed"
    yield from rendezvous_lines(attempt.job.placement.tasks)
    yield "export heliostat_address heliostat_port heliostat_hosts"
    yield _RELAY.rstrip()
    task = "\n".join([SIGNAL_TRAP, *inner.lines, _NOTE])
    yield f'srun --kill-on-bad-exit=1 --input=none /bin/sh -c {quote(task)} {first} "$@" &'
    yield _WAIT
    yield f"[ ! -s {first} ] || read -r code heliostat_full <{first}"


def _run(attempt: Attempt, words: list[str], folder: str, first: str = "") -> Iterator[str]:
    """Sets `code`. This shell hears what is meant for the job, and stays to note how it ended."""
    tasks = attempt.job.placement.tasks
    if tasks > 1:
        yield from rendezvous_lines(tasks)
        count = f"HELIOSTAT_TASKS={tasks} HELIOSTAT_TASK_COUNT={tasks} WORLD_SIZE={tasks}"
        yield f'export {count} MASTER_ADDR="$heliostat_address" MASTER_PORT="$heliostat_port" SLURM_EXPORT_ENV=ALL'
        yield 'export HELIOSTAT_TASK_HOSTS="$heliostat_hosts"'
    yield "trap : TERM INT HUP QUIT USR1 USR2"
    if tasks == 1 or starts_own_tasks(attempt.job):
        yield f"({first}exec {' '.join(words)})"  # a program, never one of the shell's own words
        yield "code=$?"
        return
    note = f"{folder}/first"
    yield f"srun --kill-on-bad-exit=1 --input=none /bin/sh -c {quote(_TASK)} task {note} {' '.join(words)}"
    yield "code=$?"
    yield f"[ ! -s {note} ] || read -r code <{note}"


def _size(attempt: Attempt, names: NameMapping) -> Iterator[str]:
    wanted, placement = attempt.job.resources, attempt.job.placement
    if 0 < wanted.gpus < 1:
        raise UnsupportedRequest("Slurm gives out whole GPUs here, not parts; ask for a whole one: --gpus 1")
    yield f"--ntasks={placement.tasks}"
    yield f"--cpus-per-task={wanted.cpus}"
    kind = f"{require_safe_word(names.slurm_gpu_type(wanted.gpu_type), 'GPU type')}:" if wanted.gpu_type else ""
    if placement.tasks > 1 and placement.layout is TaskLayout.PACK:
        yield f"--nodes=1-{placement.tasks}"
        yield f"--mem-per-cpu={math.ceil(wanted.memory_mib / wanted.cpus)}M"
    else:
        yield f"--nodes={placement.tasks}"
        yield f"--mem={wanted.memory_mib}M"
    if wanted.gpus and placement.tasks > 1:
        yield f"--gpus-per-task={kind}{wanted.gpus:.0f}"
    elif wanted.gpus:
        yield f"--gres=gpu:{kind}{wanted.gpus:.0f}"


def _conditions(attempt: Attempt, site: SubmissionContext) -> Iterator[str]:
    job = attempt.job
    place = choose_partition(job, attempt.data_class, site.name_mapping)
    if place.partition:
        yield f"--partition={place.partition}"
    if (minutes := slurm_time_limit_minutes(attempt, site)) is not None:
        yield f"--time={minutes}"
    if job.placement.exclusive:
        yield "--exclusive"
    if place.features:
        yield f"--constraint={'&'.join(place.features)}"
    if qos := site.name_mapping.slurm_qos(job.priority_class):
        yield f"--qos={qos}"


def slurm_time_limit_minutes(attempt: Attempt, site: SubmissionContext) -> int | None:
    """As Slurm is told: more than ours, which is ours to keep, but not more than the partition allows."""
    job = attempt.job
    if job.time_limit_seconds is None or job.overtime:
        return None
    wanted = math.ceil((job.time_limit_seconds + job.spec.grace_seconds + _MARGIN_SECONDS) / 60)
    allowed = site.max_run_seconds.get(
        choose_partition(job, attempt.data_class, site.name_mapping).partition or ""
    )
    return wanted if allowed is None else max(math.ceil(job.time_limit_seconds / 60), min(wanted, allowed // 60))


def _literal(path: str) -> str:
    """Slurm fills in what follows a percent sign, and drops backslashes."""
    return path.replace("\\", "\\\\").replace("%", "%%")


def _exports(environment: Mapping[str, str]) -> list[str]:
    return [f"export {name}={quote(value)}" for name, value in environment.items()]


def rendezvous_lines(tasks: int) -> Iterator[str]:
    """Sets heliostat_address, heliostat_port (one that nobody uses here) and heliostat_hosts (unless too many)."""
    yield f"heliostat_address=$({_HOSTNAMES} | head -n 1)"
    yield f"heliostat_port=$(({_FIRST_PORT} + SLURM_JOB_ID % {_PORTS}))"
    yield """while grep -qi ":$(printf %04X "$heliostat_port") " /proc/net/tcp /proc/net/tcp6 2>/dev/null; do"""
    yield "    heliostat_port=$((heliostat_port + 1))"
    yield "done"
    if tasks > MAX_LISTED_HOSTS:
        yield "heliostat_hosts="
        return
    yield f"heliostat_hosts=$({_HOSTNAMES} |"
    yield f'    awk -v counts="$SLURM_TASKS_PER_NODE" {quote(_HOST_OF_EACH_TASK)})'


def start_receipt_lines(receipt: str, number: str) -> Iterator[str]:
    """For the shell; both are words of it. Whoever has begun before, in this run or under another number, does not
    begin again; nor does one whose receipt is gone: nobody waits for it any more."""
    yield f'heliostat_run="{number} ${{SLURM_RESTART_COUNT:-0}}"'
    yield f"[ -f {receipt} ] || exit {ALREADY_STARTED_EXIT_CODE}"
    yield "while read -r heliostat_line; do"
    yield "    case $heliostat_line in"
    yield f'    "begun $heliostat_run "*) exit {ALREADY_STARTED_EXIT_CODE} ;;'
    yield f'    "begun {number} "*) ;;'
    yield f'    "begun "*) exit {ALREADY_STARTED_EXIT_CODE} ;;'
    yield "    esac"
    yield f"done <{receipt}"
    yield f'echo "begun $heliostat_run $SLURMD_NODENAME" >>{receipt} || exit {ALREADY_STARTED_EXIT_CODE}'


def end_receipt_lines(receipt: str, contained: bool = False) -> Iterator[str]:
    """After `code` is known, and of a container whether its memory was full."""
    full = "${heliostat_full:+ memory}" if contained else ""
    yield f'echo "ended $heliostat_run $code{full}" >>{receipt}'
    yield 'exit "$code"'
