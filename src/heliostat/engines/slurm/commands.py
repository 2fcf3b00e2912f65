"""Talks to Slurm through its command-line tools: words in lists, never a shell; a time limit on each."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from heliostat.config import Home
from heliostat.engines.slurm.live_read import LIVE_FIELDS, Live, by_known_number, inner_numbers, lives_of_sstat
from heliostat.engines.slurm.loads import LOAD_FIELDS, loads_of_sinfo
from heliostat.engines.slurm.numbers import ElementNumber
from heliostat.engines.slurm.parse import (
    SACCT_FIELDS,
    SINFO_FIELDS,
    SQUEUE_FIELDS,
    SlurmJob,
    SlurmNode,
    booted_at_of,
    comments_of,
    devices_of,
    jobs_of_sacct,
    jobs_of_squeue,
    max_array_size_of,
    names_of,
    new_mark,
    nodes_of_sinfo,
    submitted_number,
)
from heliostat.engines.slurm.partitions import Partition, Picture, partitions_of
from heliostat.engines.slurm.programs import SlurmRefused, run_submission, run_tool
from heliostat.engines.slurm.reservations import SlurmReservation, reservations_of
from heliostat.engines.slurm.usage import USAGE_FIELDS, Used, uses_of_sacct
from heliostat.errors import EngineUnavailable
from heliostat.models import Reading

PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "srun", "sstat", "sinfo", "sacct", "sacctmgr", "sshare")
_AT_ONCE = 500  # jobs that one program is told
_INNER = "--Format=JobArrayID:|,JobID:|"
_SQUEUE = ("squeue", "--noheader", "--all", "--array")
_OPTIONS = ("SBATCH_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_", "SLURM_")


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Slurm's tools take options from the environment too: those of whoever started the server are not ours."""
    kept = {name: value for name, value in environment.items() if not name.startswith(_OPTIONS)}
    return kept | {name: environment[name] for name in ("SLURM_CONF",) if name in environment}


@dataclass(frozen=True, slots=True)
class Commands:
    """One method for each thing we ask of Slurm."""

    lock: Path  # held while a submission is on its way, also by one that outlives its server
    environment: Mapping[str, str] = field(default_factory=lambda: clean(os.environ))

    @classmethod
    def of(cls, home: Home) -> "Commands":
        """With the one lock of this installation."""
        return cls(home.attempts / "submitting.lock")

    def submit(self, argv: Sequence[str], script: str) -> int:
        """The number Slurm gives it. After EngineUnavailable it may have been taken all the same."""
        with open(self.lock, "a", encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            said = run_submission(argv, script, self._environment_of(argv[0]), held.fileno())
        number = submitted_number(said)
        if number is None:
            raise EngineUnavailable(f"sbatch gave no number but {said[:80]!r}.")
        return number

    def has_earlier_submissions(self) -> bool:
        """A server that was killed may have left an `sbatch` that goes on: until it has ended, nobody knows what
        Slurm will have. Not to be asked while a submission of our own is on its way."""
        with open(self.lock, "a", encoding="utf-8") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def jobs(self, ours: Iterable[int] | None = None) -> dict[int, SlurmJob]:
        """Every job Slurm has in mind, also those that ended a few minutes ago. If `ours` are named, of those that
        ended at least these, with their arrays: to write out all would be most of the work if jobs are short."""
        if ours is None:
            return self._listed("--states=all")
        found = self._listed()
        gone = (number for number in ours if number not in found)
        arrays = dict.fromkeys(one.array if isinstance(one, ElementNumber) else one for one in gone)
        for numbers in _lists(arrays):
            with contextlib.suppress(SlurmRefused):  # it knows none of them
                found |= self._listed("--states=all", f"--jobs={numbers}")
        return found

    def _listed(self, *options: str) -> dict[int, SlurmJob]:
        said = self._run([*_SQUEUE, *options, f"--Format={_columns(SQUEUE_FIELDS)}"])
        return {job.number: job for job in jobs_of_squeue(said)}

    def past_jobs(self, numbers: Iterable[int]) -> dict[int, SlurmJob]:
        """What the accounting knows of these; nothing where there is none."""
        try:
            return self.accounted_jobs(numbers)
        except SlurmRefused:
            return {}

    def accounted_jobs(self, numbers: Iterable[int]) -> dict[int, SlurmJob]:
        """Raises SlurmRefused where Slurm keeps no accounting."""
        argv = ["sacct", "-X", "--parsable2", "--noheader", f"--format={','.join(SACCT_FIELDS)}"]
        said = [self._run([*argv, f"--jobs={wanted}"]) for wanted in _lists(numbers)]
        return {job.number: job for part in said for job in jobs_of_sacct(part)}

    def comments_of(self, uid: int) -> list[tuple[int, str]]:
        """Of every job of that user: a hint, see `parse.comments_of`."""
        argv = [*_SQUEUE, "--states=all", f"--user={uid}", "--Format=JobArrayID:|,Comment:|"]
        return list(comments_of(self._run(argv)))

    def names(self) -> dict[int, str]:
        """What people call their jobs: any text. A mark that nobody knows beforehand keeps one from speaking for
        another."""
        mark = new_mark()
        return dict(names_of(self._run([*_SQUEUE, f"--Format=JobArrayID:{mark},Name:{mark}"]), mark))

    def uses(self, numbers: Iterable[int]) -> dict[int, Used]:
        """What these have used, as far as the accounting knows; raises SlurmRefused where there is none."""
        argv = ["sacct", "--parsable2", "--noheader", f"--format={','.join(USAGE_FIELDS)}"]
        found: dict[int, Used] = {}
        for wanted in _lists(numbers):
            found |= uses_of_sacct(self._run([*argv, f"--jobs={wanted}"]))
        return found

    def live_uses(self, numbers: Sequence[int]) -> dict[int, Live]:
        """What these use now, as far as their nodes say; jobs that are over are left out."""
        elements = [number for number in numbers if isinstance(number, ElementNumber)]
        inner: dict[int, int] = {}
        for arrays in _lists(dict.fromkeys(number.array for number in elements)):
            inner |= inner_numbers(self._run([*_SQUEUE, f"--jobs={arrays}", _INNER]))
        wanted = [inner.get(one) if isinstance(one, ElementNumber) else int(one) for one in numbers]
        argv = ["sstat", "--allsteps", "--parsable2", "--noheader", f"--format={','.join(LIVE_FIELDS)}"]
        lives: dict[int, Live] = {}
        for words in _lists(one for one in wanted if one is not None):
            lives |= lives_of_sstat(self._run([*argv, f"--jobs={words}"]))
        return by_known_number(numbers, lives, inner)

    def step_number(self, number: int) -> int | None:
        """By which `srun` knows a running job: it takes none of an array's. None: it does not run any more."""
        if not isinstance(number, ElementNumber):
            return number
        with contextlib.suppress(SlurmRefused):
            return inner_numbers(self._run([*_SQUEUE, f"--jobs={number}", _INNER])).get(number)
        return None

    def loads(self) -> dict[str, Reading]:
        """How busy each node is."""
        argv = ["sinfo", "--noheader", "--all", "--Node", f"--Format={_columns(LOAD_FIELDS)}"]
        return loads_of_sinfo(self._run(argv))

    def devices(self, job: SlurmJob) -> dict[str, tuple[int, ...]]:
        """Which GPUs of each of its nodes a running job has; nothing, if Slurm does not say."""
        try:
            said = self._run(["scontrol", "--details", "--oneliner", "show", "job", str(job.number)])
        except SlurmRefused:
            return {}
        return devices_of(said, job.nodes)

    def nodes(self) -> list[SlurmNode]:
        argv = ["sinfo", "--noheader", "--all", "--Node", f"--Format={_columns(SINFO_FIELDS)}"]
        return list(nodes_of_sinfo(self._run(argv)))

    def partitions(self) -> dict[str, Partition]:
        return partitions_of(self._run(["scontrol", "--oneliner", "--all", "show", "partition"]))

    def picture(self) -> Picture:
        """All that requests are checked against."""
        return Picture(self.partitions(), tuple(self.nodes()), tuple(self.reservations()))

    def booted_at(self) -> datetime | None:
        """When the controller was started; None: Slurm does not say."""
        return booted_at_of(self._run(["scontrol", "show", "config"]))

    def max_array_size(self) -> int | None:
        """Indexes of arrays are below it; None: Slurm does not say."""
        return max_array_size_of(self._run(["scontrol", "show", "config"]))

    def reservations(self) -> list[SlurmReservation]:
        return list(reservations_of(self._run(["scontrol", "--oneliner", "show", "reservation"])))

    def create_reservation(self, words: Sequence[str]) -> None:
        """Words as `Nodes=n1,n2`."""
        self._run(["scontrol", "create", "reservation", *words])

    def delete_reservation(self, name: str) -> None:
        self._run(["scontrol", "delete", f"ReservationName={name}"])

    def update_node(self, node: str, *values: str) -> None:
        """`State=DRAIN`, `Reason=…`: each is one word."""
        self._run(["scontrol", "update", f"NodeName={node}", *values])

    def cancel(self, *numbers: int) -> None:
        """At once those that wait; TERM and, some time later, KILL for those that run. Already gone is success."""
        for first in range(0, len(numbers), _AT_ONCE):
            self._scancel(*map(str, numbers[first : first + _AT_ONCE]))

    def set_time_limit(self, number: int, minutes: int) -> None:
        """Of one that waits or runs."""
        self._run(["scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}"])

    def signal(self, number: int, name: str) -> None:
        """To every process of a running job. Already gone is success."""
        self._scancel("--full", f"--signal={name}", str(number))

    def ask(self, argv: Sequence[str]) -> str:
        """What one of Slurm's tools prints."""
        return self._run(argv)

    def version(self) -> str:
        return self._run(["sinfo", "--version"]).strip()

    def ping(self) -> None:
        """Raises EngineUnavailable unless a controller answers."""
        said = self._run(["scontrol", "ping"])
        if "UP" not in said.replace("/", " ").split():
            raise EngineUnavailable("slurmctld does not answer.", "See `scontrol ping` and slurmctld's log.")

    def missing(self) -> list[str]:
        """The programs that are not installed."""
        path = self.environment.get("PATH")
        return [name for name in PROGRAMS if shutil.which(name, path=path) is None]

    def _scancel(self, *words: str) -> None:
        with contextlib.suppress(SlurmRefused):  # it is gone, or going: the next look says
            self._run(["scancel", "--quiet", *words])

    def _environment_of(self, program: str) -> dict[str, str]:
        """That of `sbatch` is what a job finds before its script sets its own: nothing of the server's."""
        if program == "sbatch":
            return {name: self.environment[name] for name in ("PATH", "SLURM_CONF") if name in self.environment}
        return {**self.environment, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}

    def _run(self, argv: Sequence[str]) -> str:
        return run_tool(argv, self._environment_of(argv[0]))


def _lists(numbers: Iterable[int]) -> Iterator[str]:
    """`12,13_4`: no more at once than one word of a command may hold."""
    wanted = list(numbers)
    for first in range(0, len(wanted), _AT_ONCE):
        yield ",".join(map(str, wanted[first : first + _AT_ONCE]))


def _columns(names: Iterable[str]) -> str:
    return ",".join(f"{name}:|" for name in names)
