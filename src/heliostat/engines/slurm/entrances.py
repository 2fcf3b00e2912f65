"""The ways into jobs that run in Slurm: further commands, and the relay to their ports."""

from collections.abc import Sequence

from heliostat.config import Settings
from heliostat.engines.environment import DEFAULT_PATH, Person, Surroundings, job_environment
from heliostat.engines.folders import JobFolder, person_of
from heliostat.engines.inside import Inside, inside_script, on_terminal
from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.contained import container_base
from heliostat.engines.slurm.handed import Handed
from heliostat.engines.slurm.inside import NODE_LINE, Step, script_into_container, srun_inside
from heliostat.engines.slurm.rounds import Rounds
from heliostat.errors import Conflict
from heliostat.models import Attempt, attempt_id
from heliostat.payloads.archive import RELAY, packed


class Entrances:
    def __init__(self, settings: Settings, commands: Commands, rounds: Rounds, instance: str) -> None:
        self._settings, self._commands = settings, commands
        self._rounds, self._instance = rounds, instance

    def inside(self, attempt: Attempt, command: Sequence[str], terminal: str) -> Inside:
        number, _ = self._running(attempt)
        person, folder = person_of(attempt.job.unix_user), self._folder(attempt)
        script = self._script(attempt, person, command, terminal)
        step = Step(number, on_terminal=bool(terminal))
        return self._step(script.encode("utf-8", "surrogateescape"), person, folder, step)

    def relay(self, attempt: Attempt) -> Inside:
        """On its first node, where a session runs."""
        number, handed = self._running(attempt)
        job = attempt.job
        if job.spec.wants_container and (job.spec.network or "host") != "host":
            raise Conflict(
                f"The container of job {job.id} has a network of its own, which cannot be reached from outside.",
                "Submit it with --network host.",
            )
        node = handed.started.places[0].node if handed.started else ""
        mark = f"{self._instance}-{attempt_id(job.id, handed.first or job.attempt)}"  # as it was submitted
        step, program = Step(number, node=node), packed(RELAY, mark, path=DEFAULT_PATH)
        return self._step(program, person_of(job.unix_user), self._folder(attempt), step)

    def _running(self, attempt: Attempt) -> tuple[int, Handed]:
        """And the number by which `srun` knows it."""
        handed = self._rounds.handed.get(attempt.id)
        known = handed.number if handed is not None and handed.runs else None
        number = None if known is None else self._commands.step_number(known)
        if handed is None or number is None:
            raise Conflict(f"Job {attempt.job.id} does not run in Slurm now.", "Try again in a moment.")
        return number, handed

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
            return srun_inside(script, person, folder, step, self._commands.environment)
        except OSError as error:
            raise Conflict(
                f"A file in the job's folder cannot be made: {error.strerror}.",
                "Look whether the disk is full; an admin finds more in server.log.",
            ) from error
