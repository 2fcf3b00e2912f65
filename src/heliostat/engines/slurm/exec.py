"""Commands inside running Slurm jobs (`helio exec`), and the relay to their ports: additional job steps.

`srun` runs on this host as the job's user, without the job's environment: the user's variables must not take
effect on this host, where the user may have no login. The script that sets them is a file of the user in the job's
folder.
"""

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliostat.config import Settings
from heliostat.engines.containers import ExecTarget, container_enter_script
from heliostat.engines.exec import ExecCommand, render_exec_script, setpriv_argv, terminal_variables
from heliostat.engines.job_folders import JobFolder, require_run_as_user
from heliostat.engines.job_variables import DEFAULT_PATH, AttemptContext, RunAsUser, job_variables
from heliostat.engines.slurm.client import SlurmClient
from heliostat.engines.slurm.containers import container_base_folder
from heliostat.engines.slurm.tracked_jobs import TrackedJob, TrackedJobs
from heliostat.errors import Conflict
from heliostat.models import Attempt, format_attempt_id
from heliostat.payloads.archive import RELAY, pack_program
from heliostat.runtimes.shell_lines import placeholder, quote_word

NODE_EXPORT_LINE = (
    'export HELIOSTAT_NODE="$SLURMD_NODENAME" NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-void}"'
)
# Finds the first container of this job on this node.
_FIND = """\
for heliostat_file in "$heliostat_base/$SLURM_JOB_ID."*/shell; do
    [ -e "$heliostat_file" ] || continue
    read -r heliostat_shell heliostat_node <"$heliostat_file"
    [ "$heliostat_node" != "$SLURMD_NODENAME" ] || break
done
if [ "$heliostat_node" != "$SLURMD_NODENAME" ]; then
    echo 'heliostat: the container is not running yet' >&2
    exit 125
fi
heliostat_folder=${heliostat_file%/shell}"""


@dataclass(frozen=True, slots=True)
class SrunStep:
    slurm_job_id: int
    has_terminal: bool = False
    node: str = ""  # empty: the first of the job


class ExecBuilder:
    """Builds the commands; raises Conflict if the job is not running."""

    def __init__(self, settings: Settings, client: SlurmClient, tracked: TrackedJobs, instance: str) -> None:
        self._settings, self._client = settings, client
        self._tracked, self._instance = tracked, instance

    def build_exec(self, attempt: Attempt, command: Sequence[str], terminal: str) -> ExecCommand:
        number, _ = self._running(attempt)
        person, folder = require_run_as_user(attempt.job.unix_user), self._folder(attempt)
        script = self._script(attempt, person, command, terminal)
        step = SrunStep(number, has_terminal=bool(terminal))
        return self._step(script.encode("utf-8", "surrogateescape"), person, folder, step)

    def build_relay(self, attempt: Attempt) -> ExecCommand:
        """On the job's first node, where a session runs."""
        number, tracked = self._running(attempt)
        job = attempt.job
        if job.spec.uses_container and (job.spec.network or "host") != "host":
            raise Conflict(
                f"The container of job {job.id} has its own network, which cannot be reached from outside.",
                "Submit it with --network host.",
            )
        node = tracked.started.places[0].node if tracked.started else ""
        attempt_id = format_attempt_id(job.id, tracked.submitted_as_attempt or job.attempt)  # as it was submitted
        mark = f"{self._instance}-{attempt_id}"
        step, program = SrunStep(number, node=node), pack_program(RELAY, mark, path=DEFAULT_PATH)
        return self._step(program, require_run_as_user(job.unix_user), self._folder(attempt), step)

    def _running(self, attempt: Attempt) -> tuple[int, TrackedJob]:
        """Its id for `srun`, and the tracked job."""
        tracked = self._tracked.jobs.get(attempt.id)
        slurm_job_id = tracked.slurm_job_id if tracked is not None and tracked.is_running else None
        number = None if slurm_job_id is None else self._client.srun_job_id(slurm_job_id)
        if tracked is None or number is None:
            raise Conflict(f"Job {attempt.job.id} is not running in Slurm.", "Try again in a moment.")
        return number, tracked

    def _script(self, attempt: Attempt, person: RunAsUser, command: Sequence[str], terminal: str) -> str:
        folder = self._folder(attempt)
        workdir = attempt.job.spec.workdir or f"{folder.path}/work"
        if attempt.job.spec.uses_container:
            return container_exec_script(
                attempt, command, terminal, container_base_folder(self._settings, person), workdir
            )
        context = AttemptContext(
            str(self._settings.home.path), f"{self._instance}-{attempt.id}", folder.checkpoint_folder
        )
        variables = job_variables(attempt, person, context, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
        environment = {**variables, **attempt.job.spec.env, **terminal_variables(terminal)}
        return render_exec_script(environment, workdir, command, NODE_EXPORT_LINE)

    def _folder(self, attempt: Attempt) -> JobFolder:
        return JobFolder.for_job(self._settings.home.jobs, attempt.job.id)

    def _step(self, script: bytes, person: RunAsUser, folder: JobFolder, step: SrunStep) -> ExecCommand:
        try:
            return build_srun_exec(script, person, folder, step, self._client.environment)
        except OSError as error:
            raise Conflict(
                f"A file in the job's folder cannot be created: {error.strerror}.",
                "Check whether the disk is full. Details for admins are in server.log.",
            ) from error


def container_exec_script(attempt: Attempt, command: Sequence[str], terminal: str, base: str, workdir: str) -> str:
    """`base` is the folder for containers of the job's user. Raises AttemptRefused."""
    folder = placeholder("heliostat_folder")
    target = ExecTarget(folder, f"{folder}/s", placeholder("heliostat_shell"), workdir, terminal)
    return container_enter_script(attempt, target, command, f"heliostat_base={quote_word(base)}", _FIND)


def build_srun_exec(
    script: bytes, person: RunAsUser, folder: JobFolder, step: SrunStep, environment: Mapping[str, str]
) -> ExecCommand:
    """`environment` is that of Slurm's commands. Raises OSError if the file cannot be created."""
    path = f"{folder.path}/inside-{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with open(descriptor, "wb") as file:
        file.write(script)
        os.fchown(descriptor, person.uid, person.gid)
    options = (
        f"--jobid={step.slurm_job_id}",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        "--chdir=/",
        "--export=NONE",
        "--quiet",
        "--unbuffered",
        "--mpi=none",
        *([f"--nodelist={step.node}"] if step.node else []),
        *(["--pty"] if step.has_terminal else []),
    )
    slurm_variables = {name: environment[name] for name in ("SLURM_CONF",) if name in environment}
    tool_path = environment.get("PATH", DEFAULT_PATH)
    return ExecCommand(
        argv=(*setpriv_argv(person), "srun", *options, "/bin/sh", path),
        environment={"PATH": tool_path, "HOME": person.home, "LANG": "C.UTF-8", **slurm_variables},
        close=lambda: _remove(path),
        terminal_owner_uid=person.uid,
    )


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
