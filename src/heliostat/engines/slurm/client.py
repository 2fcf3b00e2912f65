"""Talks to Slurm through its command-line tools: words in lists, never a shell; a time limit on each."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from heliostat.config import Home
from heliostat.engines.slurm.command_output import (
    SACCT_FIELDS,
    SINFO_FIELDS,
    SQUEUE_FIELDS,
    ArrayElementId,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmReservation,
    parse_job_comments,
    parse_job_devices,
    parse_job_names,
    parse_partitions,
    parse_raw_job_ids,
    parse_reservations,
    parse_sacct_jobs,
    parse_sinfo_nodes,
    parse_slurm_config,
    parse_squeue_jobs,
    parse_submitted_job_id,
    parse_timestamp,
    parse_whole_number,
    random_delimiter,
)
from heliostat.errors import EngineUnavailable

COMMAND_TIMEOUT_SECONDS = 30.0
SUBMISSION_TIMEOUT_SECONDS = 25  # kept by a program of its own, also when the server is killed meanwhile
_AWAY_HINT = "Jobs are kept and handed over when it is back. `helio doctor` says what is wrong."
# What Slurm says when it is away for a while, rather than when it refuses (slurm/src/common/slurm_errno.c).
_AWAY = (
    "unable to contact",
    "unable to connect",
    "connect failure",
    "connection",
    "communication",
    "socket",
    "timed out",
    "transport endpoint",
    "zero bytes were transmitted",
    "unexpected message received",
    "message send failure",
    "message receive failure",
    "temporarily un",
    "standby",
    "authentication",  # munge is away
    "munge",
    "problem talking to the database",
)
_FULL = b"sbatch: error: Slurm temporarily unable to accept job"  # sbatch goes on trying for two minutes
_FULL_HINT = "It is handed over when jobs have left Slurm. An admin can raise MaxJobCount in slurm.conf."
_GLANCE_SECONDS = 0.5
_TIMED_OUT = (124, 137)  # with which `timeout` ends
_NOT_FOUND = (126, 127)
PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "srun", "sstat", "sinfo", "sacct", "sacctmgr", "sshare")
_AT_ONCE = 500  # jobs that one program is told
_SQUEUE = ("squeue", "--noheader", "--all", "--array")
_OPTIONS = ("SBATCH_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_", "SLURM_")


class SlurmRefused(Exception):
    """Slurm answered, and said no; says why in its own words."""

    output = ""  # all of it


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Slurm's tools take options from the environment too: those of whoever started the server are not ours."""
    kept = {name: value for name, value in environment.items() if not name.startswith(_OPTIONS)}
    return kept | {name: environment[name] for name in ("SLURM_CONF",) if name in environment}


@dataclass(frozen=True, slots=True)
class SlurmClient:
    """One method for each thing we ask of Slurm."""

    submission_lock: Path  # held while a submission is on its way, also by one that outlives its server
    environment: Mapping[str, str] = field(default_factory=lambda: clean_environment(os.environ))

    @classmethod
    def for_home(cls, home: Home) -> "SlurmClient":
        """With the one lock of this installation."""
        return cls(home.attempts / "submitting.lock")

    def run_command(self, argv: Sequence[str]) -> str:
        """What one of Slurm's tools prints. Raises SlurmRefused, EngineUnavailable."""
        return _run_tool(argv, self._environment_of(argv[0]))

    def submit(self, argv: Sequence[str], script: str) -> int:
        """The number Slurm gives it. After EngineUnavailable it may have been taken all the same."""
        with open(self.submission_lock, "a", encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            said = _run_submission(argv, script, self._environment_of(argv[0]), held.fileno())
        number = parse_submitted_job_id(said)
        if number is None:
            raise EngineUnavailable(f"sbatch gave no number but {said[:80]!r}.")
        return number

    def has_unfinished_submissions(self) -> bool:
        """A server that was killed may have left an `sbatch` that goes on: until it has ended, nobody knows what
        Slurm will have. Not to be asked while a submission of our own is on its way."""
        with open(self.submission_lock, "a", encoding="utf-8") as held:
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
        arrays = dict.fromkeys(one.array_job_id if isinstance(one, ArrayElementId) else one for one in gone)
        for numbers in format_job_id_lists(arrays):
            with contextlib.suppress(SlurmRefused):  # it knows none of them
                found |= self._listed("--states=all", f"--jobs={numbers}")
        return found

    def _listed(self, *options: str) -> dict[int, SlurmJob]:
        said = self.run_command([*_SQUEUE, *options, f"--Format={format_columns(SQUEUE_FIELDS)}"])
        return {job.job_id: job for job in parse_squeue_jobs(said)}

    def past_jobs(self, numbers: Iterable[int]) -> dict[int, SlurmJob]:
        """What the accounting knows of these; nothing where there is none."""
        try:
            return self.require_past_jobs(numbers)
        except SlurmRefused:
            return {}

    def require_past_jobs(self, numbers: Iterable[int]) -> dict[int, SlurmJob]:
        """Raises SlurmRefused where Slurm keeps no accounting."""
        argv = ["sacct", "-X", "--parsable2", "--noheader", f"--format={','.join(SACCT_FIELDS)}"]
        said = [self.run_command([*argv, f"--jobs={wanted}"]) for wanted in format_job_id_lists(numbers)]
        return {job.job_id: job for part in said for job in parse_sacct_jobs(part)}

    def job_comments(self, uid: int) -> list[tuple[int, str]]:
        """Of every job of that user: a hint, see `parse.comments_of`."""
        argv = [*_SQUEUE, "--states=all", f"--user={uid}", "--Format=JobArrayID:|,Comment:|"]
        return list(parse_job_comments(self.run_command(argv)))

    def job_names(self) -> dict[int, str]:
        """What people call their jobs: any text. A mark that nobody knows beforehand keeps one from speaking for
        another."""
        mark = random_delimiter()
        return dict(parse_job_names(self.run_command([*_SQUEUE, f"--Format=JobArrayID:{mark},Name:{mark}"]), mark))

    def srun_job_id(self, number: int) -> int | None:
        """By which `srun` knows a running job: it takes none of an array's. None: it does not run any more."""
        if not isinstance(number, ArrayElementId):
            return number
        with contextlib.suppress(SlurmRefused):
            return self.raw_job_ids([number]).get(number)
        return None

    def raw_job_ids(self, numbers: Iterable[int]) -> dict[int, int]:
        """The number Slurm has inside for each element of an array: of these elements, or of these arrays."""
        found: dict[int, int] = {}
        for wanted in format_job_id_lists(numbers):
            found |= parse_raw_job_ids(
                self.run_command([*_SQUEUE, f"--jobs={wanted}", "--Format=JobArrayID:|,JobID:|"])
            )
        return found

    def job_devices(self, job: SlurmJob) -> dict[str, tuple[int, ...]]:
        """Which GPUs of each of its nodes a running job has; nothing, if Slurm does not say."""
        try:
            said = self.run_command(["scontrol", "--details", "--oneliner", "show", "job", str(job.job_id)])
        except SlurmRefused:
            return {}
        return parse_job_devices(said, job.nodes)

    def nodes(self) -> list[SlurmNode]:
        argv = ["sinfo", "--noheader", "--all", "--Node", f"--Format={format_columns(SINFO_FIELDS)}"]
        return list(parse_sinfo_nodes(self.run_command(argv)))

    def partitions(self) -> dict[str, SlurmPartition]:
        return parse_partitions(self.run_command(["scontrol", "--oneliner", "--all", "show", "partition"]))

    def config(self) -> dict[str, str]:
        """Slurm's own settings."""
        return parse_slurm_config(self.run_command(["scontrol", "show", "config"]))

    def controller_started_at(self) -> datetime | None:
        """When the controller was started; None: Slurm does not say."""
        return parse_timestamp(self.config().get("BOOT_TIME", ""))

    def max_array_size(self) -> int | None:
        """Indexes of arrays are below it; None: Slurm does not say."""
        return parse_whole_number(self.config().get("MaxArraySize", ""))

    def reservations(self) -> list[SlurmReservation]:
        return list(parse_reservations(self.run_command(["scontrol", "--oneliner", "show", "reservation"])))

    def create_reservation(self, words: Sequence[str]) -> None:
        """Words as `Nodes=n1,n2`."""
        self.run_command(["scontrol", "create", "reservation", *words])

    def delete_reservation(self, name: str) -> None:
        self.run_command(["scontrol", "delete", f"ReservationName={name}"])

    def update_node(self, node: str, *values: str) -> None:
        """`State=DRAIN`, `Reason=…`: each is one word."""
        self.run_command(["scontrol", "update", f"NodeName={node}", *values])

    def cancel(self, *numbers: int) -> None:
        """At once those that wait; TERM and, some time later, KILL for those that run. Already gone is success."""
        for first in range(0, len(numbers), _AT_ONCE):
            self._scancel(*map(str, numbers[first : first + _AT_ONCE]))

    def set_time_limit(self, number: int, minutes: int) -> None:
        """Of one that waits or runs."""
        self.run_command(["scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}"])

    def send_signal(self, number: int, name: str) -> None:
        """To every process of a running job. Already gone is success."""
        self._scancel("--full", f"--signal={name}", str(number))

    def version(self) -> str:
        return self.run_command(["sinfo", "--version"]).strip()

    def ping(self) -> None:
        """Raises EngineUnavailable unless a controller answers."""
        said = self.run_command(["scontrol", "ping"])
        if "UP" not in said.replace("/", " ").split():
            raise EngineUnavailable("slurmctld does not answer.", "See `scontrol ping` and slurmctld's log.")

    def missing_programs(self) -> list[str]:
        """The programs that are not installed."""
        path = self.environment.get("PATH")
        return [name for name in PROGRAMS if shutil.which(name, path=path) is None]

    def _scancel(self, *words: str) -> None:
        with contextlib.suppress(SlurmRefused):  # it is gone, or going: the next look says
            self.run_command(["scancel", "--quiet", *words])

    def _environment_of(self, program: str) -> dict[str, str]:
        """That of `sbatch` is what a job finds before its script sets its own: nothing of the server's."""
        if program == "sbatch":
            return {name: self.environment[name] for name in ("PATH", "SLURM_CONF") if name in self.environment}
        return {**self.environment, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


def format_job_id_lists(numbers: Iterable[int]) -> Iterator[str]:
    """`12,13_4`: no more at once than one word of a command may hold."""
    wanted = list(numbers)
    for first in range(0, len(wanted), _AT_ONCE):
        yield ",".join(map(str, wanted[first : first + _AT_ONCE]))


def format_columns(names: Iterable[str]) -> str:
    return ",".join(f"{name}:|" for name in names)


@dataclass(frozen=True, slots=True)
class _Said:
    program: str
    code: int
    out: bytes
    err: bytes

    def answer(self) -> str:
        """Raises EngineUnavailable while Slurm is away, and SlurmRefused. Whether it is away, the last line says:
        it is Slurm's own, while those before may hold a site's words, or those of the job."""
        if self.code == 0:
            return self.out.decode("utf-8", "replace")
        said = self.err.decode("utf-8", "replace").strip()
        last = _last(said)
        if any(words in last.lower() for words in _AWAY):
            raise EngineUnavailable(f"Slurm does not answer: {last}", _AWAY_HINT)
        refused = SlurmRefused(last or f"{self.program} ended with {self.code}")
        refused.output = said or self.out.decode("utf-8", "replace").strip()
        raise refused


def _run_tool(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """What it prints."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            env=dict(environment),
            capture_output=True,
            timeout=COMMAND_TIMEOUT_SECONDS,
            check=False,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        _gave_no_answer(argv[0], COMMAND_TIMEOUT_SECONDS)
    except OSError as error:
        raise EngineUnavailable(f"Slurm's {argv[0]} cannot be run: {error.strerror}.", _AWAY_HINT) from error
    return _Said(argv[0], done.returncode, done.stdout, done.stderr).answer()


def _run_submission(argv: Sequence[str], script: str, environment: Mapping[str, str], keep: int) -> str:
    """The same of `sbatch`, which ends after its time even if nobody is left to end it, and is not waited for once
    it says that Slurm's queue is full. `keep`: a file that stays open until it has ended."""
    guard = [shutil.which("timeout") or "timeout", "--kill-after=2", str(SUBMISSION_TIMEOUT_SECONDS)]
    try:
        process = subprocess.Popen(
            [*guard, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd="/",
            pass_fds=(keep,),
        )
    except OSError as error:
        raise EngineUnavailable(f"Slurm's {argv[0]} cannot be run: {error.strerror}.", _AWAY_HINT) from error
    with process:
        said = _heard(process, argv[0], script.encode("utf-8", "surrogateescape"))
    if said.code in _TIMED_OUT:
        _gave_no_answer(argv[0], SUBMISSION_TIMEOUT_SECONDS)
    if said.code in _NOT_FOUND:
        raise EngineUnavailable(f"Slurm's {argv[0]} cannot be run: No such file or directory.", _AWAY_HINT)
    return said.answer()


def _heard(process: "subprocess.Popen[bytes]", program: str, script: bytes) -> _Said:
    deadline, text = time.monotonic() + COMMAND_TIMEOUT_SECONDS, script or None
    while True:
        try:
            out, err = process.communicate(text, timeout=_GLANCE_SECONDS)
        except subprocess.TimeoutExpired as error:
            text = None  # it has it
            is_full = _FULL in (error.stderr or b"")
            if not is_full and time.monotonic() < deadline:
                continue
            process.terminate()  # `timeout` passes it on, and ends when sbatch has
            out, err = process.communicate()
            if is_full and process.returncode != 0:
                raise EngineUnavailable("Slurm's queue is full (MaxJobCount).", _FULL_HINT) from None
        return _Said(program, process.returncode, out, err)


def _gave_no_answer(program: str, seconds: float) -> NoReturn:
    raise EngineUnavailable(f"Slurm's {program} gave no answer in {seconds:.0f} s.", _AWAY_HINT) from None


def _last(said: str) -> str:
    """Its last line, without the program's name."""
    line = said.splitlines()[-1] if said else ""
    return line.removeprefix("sbatch: error: ").removeprefix("Batch job submission failed: ")[:200]
