"""Arguments of `sbatch` and the batch script of an attempt. Pure. Text from users is always quoted for the shell.

The environment of a job may contain secrets: it is in the script, which Slurm shows only to the owner and to
admins, never on a command line.
"""

import hashlib
import math
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote

from heliostat.config import Home
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
from heliostat.models import Attempt, AttemptId, TaskLayout
from heliostat.runtimes.contract import TOOL_PATH

_MAX_NAME_LENGTH = 64
_SUBMISSION = re.compile(r"sbatch --parsable --comment=heliostat:[^: ]+:([0-9]{1,15}\.[0-9]{1,9})\+? ")
_MARGIN_SECONDS = 60  # the engine enforces the exact limit; Slurm's, in minutes, is for when the server is down
# A failed task writes its exit code before the other tasks are stopped: the job ends with the first exit code.
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
# The same in a container. After a stop signal it exits with 0: else srun would kill tasks that save their work.
_NOTE = """\
set -C
[ "$code" = 0 ] || { echo "$code $heliostat_full" >"$0"; } 2>/dev/null
[ -z "$heliostat_stopping" ] || exit 0
exit "$code"
"""
# Slurm signals the batch shell, not the tasks on other nodes.
_RELAY = """\
trap 'heliostat_stopping=1; scancel --signal=URG "$SLURM_JOB_ID"' URG
trap : TERM INT HUP QUIT USR1 USR2
[ -z "$heliostat_stopping" ] || exit 143
"""
_WAIT = """\
heliostat_srun=$!
while :; do
    wait "$heliostat_srun"
    code=$?
    if [ "$code" -le 128 ] || ! kill -s 0 "$heliostat_srun" 2>/dev/null; then break; fi # else interrupted
done"""
_HOSTNAMES = 'scontrol show hostnames "$SLURM_JOB_NODELIST"'
_FIRST_PORT, _PORTS = 20_000, 10_000
# Input: one node per line. `2(x3),1` is the number of tasks on each.
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
    """Paths of the attempt's files, the same on every node."""

    workdir: str
    script: str | None  # a copy of the submitted script
    stdout: str
    stderr: str
    receipt: str  # file of the user, in which the script records start and end
    tasks_folder: str  # folder of the user, for exit codes of parallel tasks


@dataclass(frozen=True, slots=True)
class SubmissionContext:
    """Values that do not depend on the attempt."""

    instance: str  # see `instance_id`
    runs_as_root: bool
    name_mapping: NameMapping = field(default_factory=NameMapping)
    max_run_seconds: Mapping[str, int] = field(default_factory=dict)  # time limit by partition
    account: str | None = None  # of the job's project, if its user may use it


def instance_id(home: Home) -> str:
    """Distinguishes the jobs and accounts of this Heliostat from all others in Slurm."""
    return hashlib.sha256(f"{socket.gethostname()}:{home.path}".encode()).hexdigest()[:12]


def attempt_comment(instance: str, attempt_id: str) -> str:
    """Identifies a job in Slurm when its Slurm job id is unknown."""
    return f"heliostat:{instance}:{attempt_id}"


def array_comment(instance: str, first_attempt_id: str) -> str:
    """The same for attempts that were submitted as one array: the id of the first identifies all."""
    return f"{attempt_comment(instance, first_attempt_id)}+"


def submitted_attempt(command: str) -> AttemptId | None:
    """The attempt that this `sbatch` of a Heliostat has submitted, of an array the first; None: it is another
    command."""
    match = _SUBMISSION.match(command)
    return None if match is None else match[1]


def sbatch_argv(attempt: Attempt, person: RunAsUser, paths: AttemptPaths, site: SubmissionContext) -> list[str]:
    """Each option and its value are one argument; the script is passed on standard input."""
    own = [
        f"--comment={attempt_comment(site.instance, attempt.id)}",
        f"--output={_literal(paths.stdout)}",
        f"--error={_literal(paths.stderr)}",
    ]
    return ["sbatch", "--parsable", *own, *common_sbatch_options(attempt, person, site)]


def common_sbatch_options(attempt: Attempt, person: RunAsUser, site: SubmissionContext) -> list[str]:
    """Options that are the same for all elements of an array."""
    return [
        f"--job-name={UNSAFE_CHARACTERS.sub('_', attempt.job.name)[:_MAX_NAME_LENGTH] or 'job'}",
        "--chdir=/",
        "--input=/dev/null",
        "--open-mode=append",
        "--no-requeue",
        "--export=ALL",  # of a nearly empty environment; other values make slurmd run login scripts for a second
        "--propagate=NONE",  # limits of the server's process do not apply to jobs
        *([f"--uid={person.uid}", f"--gid={person.gid}"] if site.runs_as_root else []),
        *([f"--account={site.account}"] if site.account else []),
        *_size(attempt, site.name_mapping),
        *_conditions(attempt, site),
    ]


@dataclass(frozen=True, slots=True)
class ScriptParts:
    """The parts of a script that differ between a single job and an array, quoted for the shell."""

    setup_lines: tuple[str, ...]  # before all others
    slurm_job_id: str
    receipt: str
    open_log_lines: tuple[str, ...]  # if Slurm does not open the log files
    export_lines: tuple[str, ...]  # after Heliostat's variables
    workdir: str
    script: str | None
    tasks_folder: str
    container_script: ContainerScript | None = None
    command_offset: int | None = None  # number of positional parameters before those with the command


def render_batch_script(
    attempt: Attempt,
    person: RunAsUser,
    paths: AttemptPaths,
    context: AttemptContext,
    contained: ContainerScript | None = None,
) -> str:
    parts = ScriptParts(
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
    return render_script(attempt, person, context, parts)


def render_script(attempt: Attempt, person: RunAsUser, context: AttemptContext, parts: ScriptParts) -> str:
    container = parts.container_script
    lines = [
        "#!/bin/sh",
        *([SIGNAL_TRAP] if container else []),
        *parts.setup_lines,
        *start_receipt_lines(parts.receipt, parts.slurm_job_id),
        *parts.open_log_lines,
        "umask 022",
        *(
            _container_lines(attempt, container, parts.tasks_folder)
            if container
            else _process_lines(attempt, person, context, parts)
        ),
        *end_receipt_lines(parts.receipt, contained=container is not None),
    ]
    return "\n".join(lines) + "\n"


def _process_lines(
    attempt: Attempt, person: RunAsUser, context: AttemptContext, parts: ScriptParts
) -> Iterator[str]:
    yield from _exports(job_variables(attempt, person, context, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}))
    yield from parts.export_lines
    yield 'export HELIOSTAT_NODE="$SLURMD_NODENAME" NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-void}"'
    yield from _exports(attempt.job.spec.env)
    yield f"cd -- {parts.workdir} || {{"
    yield "    echo 'heliostat: the working directory cannot be entered' >&2"
    yield "    exit 126"
    yield "}"
    if parts.command_offset is not None:
        yield from _run_lines(attempt, ['"$@"'], parts.tasks_folder, before=f"shift {parts.command_offset}; ")
        return
    command = [quote(word) for word in attempt.job.spec.command]
    command = command if parts.script is None else [parts.script, *command]
    prefix = launch_prefix(attempt.job)
    command = [*map(quote, prefix.argv), *command[prefix.replaced_word_count :]]
    yield from _run_lines(attempt, command, parts.tasks_folder)


def _container_lines(attempt: Attempt, container: ContainerScript, folder: str) -> Iterator[str]:
    """Sets `code`. Each task is a shell that runs its container."""
    yield f"heliostat_sealed={quote(container.sealed_variables)}"
    if attempt.job.placement.tasks == 1:
        yield from container.lines
        return
    first = f"{folder}/first"
    yield f"export PATH={TOOL_PATH} SLURM_EXPORT_ENV=ALL heliostat_sealed"
    yield from rendezvous_lines(attempt.job.placement.tasks)
    yield "export heliostat_address heliostat_port heliostat_hosts"
    yield _RELAY.rstrip()
    task = "\n".join([SIGNAL_TRAP, *container.lines, _NOTE])
    yield f'srun --kill-on-bad-exit=1 --input=none /bin/sh -c {quote(task)} {first} "$@" &'
    yield _WAIT
    yield f"[ ! -s {first} ] || read -r code heliostat_full <{first}"


def _run_lines(attempt: Attempt, command: list[str], folder: str, before: str = "") -> Iterator[str]:
    """Sets `code`. The shell survives signals to the job, in order to record its exit code."""
    tasks = attempt.job.placement.tasks
    if tasks > 1:
        yield from rendezvous_lines(tasks)
        count = f"HELIOSTAT_TASKS={tasks} HELIOSTAT_TASK_COUNT={tasks} WORLD_SIZE={tasks}"
        yield f'export {count} MASTER_ADDR="$heliostat_address" MASTER_PORT="$heliostat_port" SLURM_EXPORT_ENV=ALL'
        yield 'export HELIOSTAT_TASK_HOSTS="$heliostat_hosts"'
    yield "trap : TERM INT HUP QUIT USR1 USR2"
    if tasks == 1 or starts_own_tasks(attempt.job):
        yield f"({before}exec {' '.join(command)})"  # always a program, never a builtin of the shell
        yield "code=$?"
        return
    first_code = f"{folder}/first"
    yield f"srun --kill-on-bad-exit=1 --input=none /bin/sh -c {quote(_TASK)} task {first_code} {' '.join(command)}"
    yield "code=$?"
    yield f"[ ! -s {first_code} ] || read -r code <{first_code}"


def _size(attempt: Attempt, names: NameMapping) -> Iterator[str]:
    requested, placement = attempt.job.resources, attempt.job.placement
    if 0 < requested.gpus < 1:
        raise UnsupportedRequest(
            "Slurm allocates whole GPUs, not fractions of a GPU; request a whole GPU: --gpus 1"
        )
    yield f"--ntasks={placement.tasks}"
    yield f"--cpus-per-task={requested.cpus}"
    kind = (
        f"{require_safe_word(names.slurm_gpu_type(requested.gpu_type), 'GPU type')}:" if requested.gpu_type else ""
    )
    if placement.tasks > 1 and placement.layout is TaskLayout.PACK:
        yield f"--nodes=1-{placement.tasks}"
        yield f"--mem-per-cpu={math.ceil(requested.memory_mib / requested.cpus)}M"
    else:
        yield f"--nodes={placement.tasks}"
        yield f"--mem={requested.memory_mib}M"
    if requested.gpus and placement.tasks > 1:
        yield f"--gpus-per-task={kind}{requested.gpus:.0f}"
    elif requested.gpus:
        yield f"--gres=gpu:{kind}{requested.gpus:.0f}"


def _conditions(attempt: Attempt, site: SubmissionContext) -> Iterator[str]:
    job = attempt.job
    choice = choose_partition(job, attempt.data_class, site.name_mapping)
    if choice.partition:
        yield f"--partition={choice.partition}"
    if (minutes := slurm_time_limit_minutes(attempt, site)) is not None:
        yield f"--time={minutes}"
    if job.placement.exclusive:
        yield "--exclusive"
    if choice.features:
        yield f"--constraint={'&'.join(choice.features)}"
    if qos := site.name_mapping.slurm_qos(job.priority_class):
        yield f"--qos={qos}"


def slurm_time_limit_minutes(attempt: Attempt, site: SubmissionContext) -> int | None:
    """The limit for Slurm: longer than the job's, which the engine enforces, but within the partition's limit."""
    job = attempt.job
    if job.time_limit_seconds is None or job.overtime:
        return None
    minutes = math.ceil((job.time_limit_seconds + job.spec.grace_seconds + _MARGIN_SECONDS) / 60)
    allowed = site.max_run_seconds.get(
        choose_partition(job, attempt.data_class, site.name_mapping).partition or ""
    )
    return minutes if allowed is None else max(math.ceil(job.time_limit_seconds / 60), min(minutes, allowed // 60))


def _literal(path: str) -> str:
    """Slurm replaces patterns such as %j, and removes backslashes."""
    return path.replace("\\", "\\\\").replace("%", "%%")


def _exports(environment: Mapping[str, str]) -> list[str]:
    return [f"export {name}={quote(value)}" for name, value in environment.items()]


def rendezvous_lines(tasks: int) -> Iterator[str]:
    """Sets heliostat_address, heliostat_port (a free one) and heliostat_hosts (empty if there are too many)."""
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
    """Both arguments are quoted for the shell. A job does not start again if its receipt has a start in this run
    or under another Slurm job id, nor if the receipt does not exist: then the attempt was abandoned."""
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
    """Needs `code`, and for a container `heliostat_full`."""
    full = "${heliostat_full:+ memory}" if contained else ""
    yield f'echo "ended $heliostat_run $code{full}" >>{receipt}'
    yield 'exit "$code"'
