"""Client of Slurm's command-line tools: argument lists, never a shell; a timeout for each command."""

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
    parse_planned_start,
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
SUBMISSION_TIMEOUT_SECONDS = 25  # enforced by `timeout`, also if the server is killed meanwhile
_UNAVAILABLE_HINT = "Jobs are kept and submitted when Slurm responds again. `helio doctor` shows what is wrong."
# Slurm's messages while it is unavailable, rather than refusing (slurm/src/common/slurm_errno.c).
_UNAVAILABLE = (
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
    "authentication",  # munge is not running
    "munge",
    "problem talking to the database",
)
_FULL = b"sbatch: error: Slurm temporarily unable to accept job"  # sbatch retries for two minutes
_FULL_HINT = "The job is submitted when other jobs have left Slurm. An admin can raise MaxJobCount in slurm.conf."
_SUBMISSION_POLL_SECONDS = 0.5
_TIMED_OUT = (124, 137)  # exit codes of `timeout`
_NOT_FOUND = (126, 127)
PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "srun", "sstat", "sinfo", "sacct", "sacctmgr", "sshare")
_MAX_IDS_PER_COMMAND = 500
_SQUEUE = ("squeue", "--noheader", "--all", "--array")
_OPTION_PREFIXES = ("SBATCH_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_", "SLURM_")


class SlurmRefused(Exception):
    """Slurm rejected the request. The message is Slurm's own."""

    output = ""  # complete output of the command


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without variables that set options of Slurm's tools: they come from the user who started the server."""
    clean = {name: value for name, value in environment.items() if not name.startswith(_OPTION_PREFIXES)}
    return clean | {name: environment[name] for name in ("SLURM_CONF",) if name in environment}


@dataclass(frozen=True, slots=True)
class SlurmClient:
    """One method per request to Slurm."""

    submission_lock: Path  # held during a submission, also by an `sbatch` that outlives its server
    environment: Mapping[str, str] = field(default_factory=lambda: clean_environment(os.environ))

    @classmethod
    def for_home(cls, home: Home) -> "SlurmClient":
        """With the submission lock of this installation."""
        return cls(home.attempts / "submitting.lock")

    def run_command(self, argv: Sequence[str]) -> str:
        """Returns the output of one of Slurm's tools. Raises SlurmRefused, EngineUnavailable."""
        return _run_tool(argv, self._environment_of(argv[0]))

    def submit(self, argv: Sequence[str], script: str) -> int:
        """Returns the Slurm job id. After EngineUnavailable, Slurm may have the job nevertheless."""
        with open(self.submission_lock, "a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            output = _run_submission(argv, script, self._environment_of(argv[0]), lock.fileno())
        number = parse_submitted_job_id(output)
        if number is None:
            raise EngineUnavailable(f"sbatch printed no job id but {output[:80]!r}.")
        return number

    def forecast_start(self, argv: Sequence[str]) -> datetime | None:
        """The start that `sbatch --test-only` reports; None: it reports none."""
        result = _run(argv, {**self._environment_of(argv[0]), "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"})
        result.output()
        return parse_planned_start(result.err.decode("utf-8", "replace"))

    def has_unfinished_submissions(self) -> bool:
        """Whether an `sbatch` of a killed server still runs: until it ends, it is unknown which jobs Slurm has.
        Must not be called during a submission of this server."""
        with open(self.submission_lock, "a", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def jobs(self, ours: Iterable[int] | None = None) -> dict[int, SlurmJob]:
        """Every job in slurmctld's memory, including jobs that ended a few minutes ago. With `ours`, of the ended
        jobs only these and their arrays: listing all is expensive if jobs are short."""
        if ours is None:
            return self._squeue("--states=all")
        found = self._squeue()
        missing = (number for number in ours if number not in found)
        arrays = dict.fromkeys(id_.array_job_id if isinstance(id_, ArrayElementId) else id_ for id_ in missing)
        for numbers in format_job_id_lists(arrays):
            with contextlib.suppress(SlurmRefused):  # none of them exists
                found |= self._squeue("--states=all", f"--jobs={numbers}")
        return found

    def _squeue(self, *options: str) -> dict[int, SlurmJob]:
        output = self.run_command([*_SQUEUE, *options, f"--Format={format_columns(SQUEUE_FIELDS)}"])
        return {job.job_id: job for job in parse_squeue_jobs(output)}

    def past_jobs(self, numbers: Iterable[int]) -> dict[int, SlurmJob]:
        """The accounting's records of these jobs; empty if there is no accounting."""
        try:
            return self.require_past_jobs(numbers)
        except SlurmRefused:
            return {}

    def require_past_jobs(self, numbers: Iterable[int]) -> dict[int, SlurmJob]:
        """Raises SlurmRefused if Slurm has no accounting."""
        argv = ["sacct", "-X", "--parsable2", "--noheader", f"--format={','.join(SACCT_FIELDS)}"]
        outputs = [self.run_command([*argv, f"--jobs={ids}"]) for ids in format_job_id_lists(numbers)]
        return {job.job_id: job for output in outputs for job in parse_sacct_jobs(output)}

    def job_comments(self, uid: int) -> list[tuple[int, str]]:
        """Of every job of that user. Not trustworthy, see `parse_job_comments`."""
        argv = [*_SQUEUE, "--states=all", f"--user={uid}", "--Format=JobArrayID:|,Comment:|"]
        return list(parse_job_comments(self.run_command(argv)))

    def job_names(self) -> dict[int, str]:
        """Names are any text. The random delimiter prevents a name that imitates lines of other jobs."""
        mark = random_delimiter()
        return dict(parse_job_names(self.run_command([*_SQUEUE, f"--Format=JobArrayID:{mark},Name:{mark}"]), mark))

    def srun_job_id(self, number: int) -> int | None:
        """The id that `srun --jobid` accepts, which is not that of an array element. None: it no longer runs."""
        if not isinstance(number, ArrayElementId):
            return number
        with contextlib.suppress(SlurmRefused):
            return self.raw_job_ids([number]).get(number)
        return None

    def raw_job_ids(self, numbers: Iterable[int]) -> dict[int, int]:
        """Slurm's internal id of array elements, given these elements or their arrays."""
        found: dict[int, int] = {}
        for ids in format_job_id_lists(numbers):
            found |= parse_raw_job_ids(
                self.run_command([*_SQUEUE, f"--jobs={ids}", "--Format=JobArrayID:|,JobID:|"])
            )
        return found

    def job_devices(self, job: SlurmJob) -> dict[str, tuple[int, ...]]:
        """Indexes of a running job's GPUs by node; empty if unknown."""
        try:
            output = self.run_command(["scontrol", "--details", "--oneliner", "show", "job", str(job.job_id)])
        except SlurmRefused:
            return {}
        return parse_job_devices(output, job.nodes)

    def nodes(self) -> list[SlurmNode]:
        argv = ["sinfo", "--noheader", "--all", "--Node", f"--Format={format_columns(SINFO_FIELDS)}"]
        return list(parse_sinfo_nodes(self.run_command(argv)))

    def partitions(self) -> dict[str, SlurmPartition]:
        return parse_partitions(self.run_command(["scontrol", "--oneliner", "--all", "show", "partition"]))

    def config(self) -> dict[str, str]:
        """Slurm's configuration."""
        return parse_slurm_config(self.run_command(["scontrol", "show", "config"]))

    def controller_started_at(self) -> datetime | None:
        """Start time of slurmctld; None: unknown."""
        return parse_timestamp(self.config().get("BOOT_TIME", ""))

    def max_array_size(self) -> int | None:
        """Array indexes are below it; None: unknown."""
        return parse_whole_number(self.config().get("MaxArraySize", ""))

    def reservations(self) -> list[SlurmReservation]:
        return list(parse_reservations(self.run_command(["scontrol", "--oneliner", "show", "reservation"])))

    def create_reservation(self, arguments: Sequence[str]) -> None:
        """Arguments such as `Nodes=n1,n2`."""
        self.run_command(["scontrol", "create", "reservation", *arguments])

    def delete_reservation(self, name: str) -> None:
        self.run_command(["scontrol", "delete", f"ReservationName={name}"])

    def update_node(self, node: str, *values: str) -> None:
        """Values such as `State=DRAIN`, `Reason=…`."""
        self.run_command(["scontrol", "update", f"NodeName={node}", *values])

    def cancel(self, *numbers: int) -> None:
        """Waiting jobs end at once; running ones get TERM and later KILL. Ended jobs count as success."""
        for first in range(0, len(numbers), _MAX_IDS_PER_COMMAND):
            self._scancel(*map(str, numbers[first : first + _MAX_IDS_PER_COMMAND]))

    def set_time_limit(self, number: int, minutes: int) -> None:
        """Of a waiting or running job."""
        self.run_command(["scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}"])

    def send_signal(self, number: int, name: str) -> None:
        """To every process of a running job. An ended job counts as success."""
        self._scancel("--full", f"--signal={name}", str(number))

    def version(self) -> str:
        return self.run_command(["sinfo", "--version"]).strip()

    def ping(self) -> None:
        """Raises EngineUnavailable unless a controller responds."""
        output = self.run_command(["scontrol", "ping"])
        if "UP" not in output.replace("/", " ").split():
            raise EngineUnavailable("slurmctld does not respond.", "See `scontrol ping` and slurmctld's log.")

    def missing_programs(self) -> list[str]:
        """Programs of Slurm that are not installed."""
        path = self.environment.get("PATH")
        return [name for name in PROGRAMS if shutil.which(name, path=path) is None]

    def _scancel(self, *arguments: str) -> None:
        with contextlib.suppress(SlurmRefused):  # it has ended, or is ending: the next poll shows it
            self.run_command(["scancel", "--quiet", *arguments])

    def _environment_of(self, program: str) -> dict[str, str]:
        """Jobs inherit the environment of `sbatch`: it contains nothing of the server's."""
        if program == "sbatch":
            return {name: self.environment[name] for name in ("PATH", "SLURM_CONF") if name in self.environment}
        return {**self.environment, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


def format_job_id_lists(numbers: Iterable[int]) -> Iterator[str]:
    """Lists such as `12,13_4`, each short enough for one argument."""
    ids = list(numbers)
    for first in range(0, len(ids), _MAX_IDS_PER_COMMAND):
        yield ",".join(map(str, ids[first : first + _MAX_IDS_PER_COMMAND]))


def format_columns(names: Iterable[str]) -> str:
    return ",".join(f"{name}:|" for name in names)


@dataclass(frozen=True, slots=True)
class _CommandResult:
    program: str
    code: int
    out: bytes
    err: bytes

    def output(self) -> str:
        """Raises EngineUnavailable or SlurmRefused. The last line decides which: it is Slurm's own, while earlier
        lines may come from the site's plugins or from the job."""
        if self.code == 0:
            return self.out.decode("utf-8", "replace")
        errors = self.err.decode("utf-8", "replace").strip()
        message = _last_line(errors)
        if any(phrase in message.lower() for phrase in _UNAVAILABLE):
            raise EngineUnavailable(f"Slurm does not respond: {message}", _UNAVAILABLE_HINT)
        refused = SlurmRefused(message or f"{self.program} ended with exit code {self.code}")
        refused.output = errors or self.out.decode("utf-8", "replace").strip()
        raise refused


def _run_tool(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    return _run(argv, environment).output()


def _run(argv: Sequence[str], environment: Mapping[str, str]) -> _CommandResult:
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
        _raise_timeout(argv[0], COMMAND_TIMEOUT_SECONDS)
    except OSError as error:
        message = f"Slurm's {argv[0]} cannot be run: {error.strerror}."
        raise EngineUnavailable(message, _UNAVAILABLE_HINT) from error
    return _CommandResult(argv[0], done.returncode, done.stdout, done.stderr)


def _run_submission(argv: Sequence[str], script: str, environment: Mapping[str, str], keep: int) -> str:
    """Runs `sbatch` below `timeout`, so that it ends in time even if the server is killed. Stops it when it
    reports that Slurm's queue is full. `keep`: a descriptor that stays open until it has ended."""
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
        message = f"Slurm's {argv[0]} cannot be run: {error.strerror}."
        raise EngineUnavailable(message, _UNAVAILABLE_HINT) from error
    with process:
        result = _wait_for_submission(process, argv[0], script.encode("utf-8", "surrogateescape"))
    if result.code in _TIMED_OUT:
        _raise_timeout(argv[0], SUBMISSION_TIMEOUT_SECONDS)
    if result.code in _NOT_FOUND:
        raise EngineUnavailable(f"Slurm's {argv[0]} cannot be run: No such file or directory.", _UNAVAILABLE_HINT)
    return result.output()


def _wait_for_submission(process: "subprocess.Popen[bytes]", program: str, script: bytes) -> _CommandResult:
    deadline, text = time.monotonic() + COMMAND_TIMEOUT_SECONDS, script or None
    while True:
        try:
            out, err = process.communicate(text, timeout=_SUBMISSION_POLL_SECONDS)
        except subprocess.TimeoutExpired as error:
            text = None  # already written
            is_full = _FULL in (error.stderr or b"")
            if not is_full and time.monotonic() < deadline:
                continue
            process.terminate()  # `timeout` forwards the signal, and ends after sbatch
            out, err = process.communicate()
            if is_full and process.returncode != 0:
                raise EngineUnavailable("Slurm's queue is full (MaxJobCount).", _FULL_HINT) from None
        return _CommandResult(program, process.returncode, out, err)


def _raise_timeout(program: str, seconds: float) -> NoReturn:
    raise EngineUnavailable(f"Slurm's {program} did not respond in {seconds:.0f} s.", _UNAVAILABLE_HINT) from None


def _last_line(errors: str) -> str:
    """Without the program's name."""
    line = errors.splitlines()[-1] if errors else ""
    return line.removeprefix("sbatch: error: ").removeprefix("Batch job submission failed: ")[:200]
