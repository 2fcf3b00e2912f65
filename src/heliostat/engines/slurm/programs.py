"""Runs Slurm's programs: words in lists, never a shell; a time limit on each; what their last words mean."""

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from heliostat.errors import EngineUnavailable

SECONDS = 30.0
SUBMISSION_SECONDS = 25  # kept by a program of its own, also when the server is killed meanwhile
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


class SlurmRefused(Exception):
    """Slurm answered, and said no; says why in its own words."""

    said = ""  # all of it


@dataclass(frozen=True, slots=True)
class Said:
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
        refused.said = said or self.out.decode("utf-8", "replace").strip()
        raise refused


def run_tool(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """What it prints."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            env=dict(environment),
            capture_output=True,
            timeout=SECONDS,
            check=False,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        _gave_no_answer(argv[0], SECONDS)
    except OSError as error:
        raise EngineUnavailable(f"Slurm's {argv[0]} cannot be run: {error.strerror}.", _AWAY_HINT) from error
    return Said(argv[0], done.returncode, done.stdout, done.stderr).answer()


def run_submission(argv: Sequence[str], script: str, environment: Mapping[str, str], keep: int) -> str:
    """The same of `sbatch`, which ends after its time even if nobody is left to end it, and is not waited for once
    it says that Slurm's queue is full. `keep`: a file that stays open until it has ended."""
    guard = [shutil.which("timeout") or "timeout", "--kill-after=2", str(SUBMISSION_SECONDS)]
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
        _gave_no_answer(argv[0], SUBMISSION_SECONDS)
    if said.code in _NOT_FOUND:
        raise EngineUnavailable(f"Slurm's {argv[0]} cannot be run: No such file or directory.", _AWAY_HINT)
    return said.answer()


def _heard(process: "subprocess.Popen[bytes]", program: str, script: bytes) -> Said:
    deadline, text = time.monotonic() + SECONDS, script or None
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
        return Said(program, process.returncode, out, err)


def _gave_no_answer(program: str, seconds: float) -> NoReturn:
    raise EngineUnavailable(f"Slurm's {program} gave no answer in {seconds:.0f} s.", _AWAY_HINT) from None


def _last(said: str) -> str:
    """Its last line, without the program's name."""
    line = said.splitlines()[-1] if said else ""
    return line.removeprefix("sbatch: error: ").removeprefix("Batch job submission failed: ")[:200]
