"""Launch templates (torchrun, mpirun, Spark): the command prefix that connects the tasks of a job. Pure.

Ranks and addresses are environment variables that every engine sets; a shell expands them in each task.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heliostat.models import Job

MAX_LISTED_HOSTS = 1000  # in a variable, which Linux limits to 128 KiB

_TORCHRUN = (
    "exec torchrun --nnodes={tasks} --nproc-per-node={processes} "
    '--node-rank="$HELIOSTAT_TASK_INDEX" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"'
)
_MPIRUN = (
    'HELIOSTAT_HOSTS_FILE="$HELIOSTAT_CHECKPOINT_DIR/hosts.$HELIOSTAT_ATTEMPT"; export HELIOSTAT_HOSTS_FILE; '
    'echo "$HELIOSTAT_TASK_HOSTS" | tr , "\\n" >"$HELIOSTAT_HOSTS_FILE" || exit 126; '
    'exec mpirun -np {tasks} -machinefile "$HELIOSTAT_HOSTS_FILE" "$@"'
)


@dataclass(frozen=True, slots=True)
class LaunchPrefix:
    """The words before the command, and how many words at the start of the command they replace."""

    argv: tuple[str, ...] = ()
    replaced_word_count: int = 0

    def apply_to(self, command: Sequence[str]) -> tuple[str, ...]:
        return (*self.argv, *command[self.replaced_word_count :])


def launch_prefix(job: Job) -> LaunchPrefix:
    """Empty for a job without a template."""
    tasks, processes = job.placement.tasks, max(1, job.resources.device_count)
    if job.spec.template == "torchrun":
        return _torchrun(job, tasks, processes)
    if job.spec.template == "mpi":
        return LaunchPrefix(_mpirun(tasks))
    if job.spec.template == "spark":
        return LaunchPrefix(("/bin/sh", "-c", _spark_text(), "spark"))
    return LaunchPrefix()


def starts_own_tasks(job: Job) -> bool:
    """Whether the command is started once and starts the tasks itself."""
    return job.spec.template == "mpi"


def task_hosts_variable(hosts: Sequence[str]) -> dict[str, str]:
    """The node of each task, in the order of the tasks."""
    return {"HELIOSTAT_TASK_HOSTS": ",".join(hosts)} if len(hosts) <= MAX_LISTED_HOSTS else {}


def _torchrun(job: Job, tasks: int, processes: int) -> LaunchPrefix:
    """One process per GPU of a task. `python train.py` becomes `train.py`, since torchrun starts Python itself."""
    command = job.spec.command if job.spec.script is None else ("script", *job.spec.command)
    is_python = command[0].rpartition("/")[2].startswith("python") and len(command) > 1
    replaces = 1 if is_python and (command[1] == "-m" or not command[1].startswith("-")) else 0
    first = command[replaces]
    no_python = () if replaces or first == "-m" or first.endswith(".py") else ("--no-python",)
    if tasks == 1:
        return LaunchPrefix(("torchrun", "--standalone", f"--nproc-per-node={processes}", *no_python), replaces)
    line = _TORCHRUN.format(tasks=tasks, processes=processes)
    return LaunchPrefix(("/bin/sh", "-c", line, "torchrun", *no_python), replaces)


def _mpirun(tasks: int) -> tuple[str, ...]:
    if tasks == 1:
        return ("mpirun", "-np", "1")
    return ("/bin/sh", "-c", _MPIRUN.format(tasks=tasks), "mpirun")


@cache
def _spark_text() -> str:
    return Path(__file__).with_name("spark.sh").read_text(encoding="utf-8").rstrip()
