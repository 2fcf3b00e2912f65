"""Further commands inside jobs that run in Slurm, and the relay to their ports: steps beside those a job has.

`srun` runs here as the job's user, with nothing of the job's environment: what a user may set must not act on this
machine, where they may have no login. The script that sets it is a file of the user's in the job's folder.
"""

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliostat.config import Settings
from heliostat.engines.containers import Door, enter_script
from heliostat.engines.environment import DEFAULT_PATH, Person, Surroundings, job_environment
from heliostat.engines.folders import JobFolder, person_of
from heliostat.engines.inside import Inside, as_user, inside_script, on_terminal
from heliostat.engines.slurm.client import SlurmClient
from heliostat.engines.slurm.containers import container_base
from heliostat.engines.slurm.tracked_job import TrackedJob, TrackedJobs
from heliostat.errors import Conflict
from heliostat.models import Attempt, attempt_id
from heliostat.payloads.archive import RELAY, packed
from heliostat.runtimes.shell import blank, quoted

NODE_LINE = 'export HELIOSTAT_NODE="$SLURMD_NODENAME" NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-void}"'
# The first task of this job on this node that is in its container.
_FIND = """\
for heliostat_file in "$heliostat_base/$SLURM_JOB_ID."*/shell; do
    [ -e "$heliostat_file" ] || continue
    read -r heliostat_shell heliostat_node <"$heliostat_file"
    [ "$heliostat_node" != "$SLURMD_NODENAME" ] || break
done
if [ "$heliostat_node" != "$SLURMD_NODENAME" ]; then
    echo 'heliostat: nothing runs in the container yet' >&2
    exit 125
fi
heliostat_folder=${heliostat_file%/shell}"""


@dataclass(frozen=True, slots=True)
class Step:
    number: int  # of its job in Slurm
    on_terminal: bool = False
    node: str = ""  # none: the first


class Exec:
    """Builds what to start; raises Conflict for a job that does not run now."""

    def __init__(self, settings: Settings, client: SlurmClient, tracked: TrackedJobs, instance: str) -> None:
        self._settings, self._client = settings, client
        self._tracked, self._instance = tracked, instance

    def inside(self, attempt: Attempt, command: Sequence[str], terminal: str) -> Inside:
        number, _ = self._running(attempt)
        person, folder = person_of(attempt.job.unix_user), self._folder(attempt)
        script = self._script(attempt, person, command, terminal)
        step = Step(number, on_terminal=bool(terminal))
        return self._step(script.encode("utf-8", "surrogateescape"), person, folder, step)

    def relay(self, attempt: Attempt) -> Inside:
        """On its first node, where a session runs."""
        number, tracked = self._running(attempt)
        job = attempt.job
        if job.spec.wants_container and (job.spec.network or "host") != "host":
            raise Conflict(
                f"The container of job {job.id} has a network of its own, which cannot be reached from outside.",
                "Submit it with --network host.",
            )
        node = tracked.started.places[0].node if tracked.started else ""
        mark = f"{self._instance}-{attempt_id(job.id, tracked.first or job.attempt)}"  # as it was submitted
        step, program = Step(number, node=node), packed(RELAY, mark, path=DEFAULT_PATH)
        return self._step(program, person_of(job.unix_user), self._folder(attempt), step)

    def _running(self, attempt: Attempt) -> tuple[int, TrackedJob]:
        """And the number by which `srun` knows it."""
        tracked = self._tracked.jobs.get(attempt.id)
        known = tracked.number if tracked is not None and tracked.runs else None
        number = None if known is None else self._client.step_number(known)
        if tracked is None or number is None:
            raise Conflict(f"Job {attempt.job.id} does not run in Slurm now.", "Try again in a moment.")
        return number, tracked

    def _script(self, attempt: Attempt, person: Person, command: Sequence[str], terminal: str) -> str:
        folder = self._folder(attempt)
        workdir = attempt.job.spec.workdir or f"{folder.path}/work"
        if attempt.job.spec.wants_container:
            return script_into_container(
                attempt, command, terminal, container_base(self._settings, person), workdir
            )
        around = Surroundings(str(self._settings.home.path), f"{self._instance}-{attempt.id}", folder.checkpoints)
        known = job_environment(attempt, person, around, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
        environment = {**known, **attempt.job.spec.env, **on_terminal(terminal)}
        return inside_script(environment, workdir, command, NODE_LINE)

    def _folder(self, attempt: Attempt) -> JobFolder:
        return JobFolder.of(self._settings.home.jobs, attempt.job.id)

    def _step(self, script: bytes, person: Person, folder: JobFolder, step: Step) -> Inside:
        try:
            return srun_inside(script, person, folder, step, self._client.environment)
        except OSError as error:
            raise Conflict(
                f"A file in the job's folder cannot be made: {error.strerror}.",
                "Look whether the disk is full; an admin finds more in server.log.",
            ) from error


def script_into_container(attempt: Attempt, command: Sequence[str], terminal: str, base: str, workdir: str) -> str:
    """`base` is the folder in which containers of its user keep their things. Raises Refused."""
    folder = blank("heliostat_folder")
    door = Door(folder, f"{folder}/s", blank("heliostat_shell"), workdir, terminal)
    return enter_script(attempt, door, command, f"heliostat_base={quoted(base)}", _FIND)


def srun_inside(
    script: bytes, person: Person, folder: JobFolder, step: Step, environment: Mapping[str, str]
) -> Inside:
    """`environment` is that of Slurm's commands. OSError when the file cannot be made."""
    path = f"{folder.path}/inside-{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with open(descriptor, "wb") as file:
        file.write(script)
        os.fchown(descriptor, person.uid, person.gid)
    words = (
        f"--jobid={step.number}",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        "--chdir=/",
        "--export=NONE",
        "--quiet",
        "--unbuffered",
        "--mpi=none",
        *([f"--nodelist={step.node}"] if step.node else []),
        *(["--pty"] if step.on_terminal else []),
    )
    kept = {name: environment[name] for name in ("SLURM_CONF",) if name in environment}
    path_of_tools = environment.get("PATH", DEFAULT_PATH)
    return Inside(
        argv=(*as_user(person), "srun", *words, "/bin/sh", path),
        environment={"PATH": path_of_tools, "HOME": person.home, "LANG": "C.UTF-8", **kept},
        close=lambda: _remove(path),
        owner=person.uid,
    )


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
