"""Slurm on one node, tuned for short jobs (see `bench.slurm_up`)."""

from __future__ import annotations

import itertools
import subprocess
import time
from pathlib import Path
from typing import ClassVar

from bench.peers.contract import FirstLine, PeerFailed, wait_for_file, wait_for_line
from bench.private_slurm import PrivateSlurm, SlurmNotStarted
from bench.settings import WORK_FOLDER, job_slots

SUBMIT_LOOP = 'left=$1; shift; while [ "$left" -gt 0 ]; do sbatch "$@" --wrap true; left=$((left - 1)); done'
# Each look is a process and a request to the controller: not often, and only near the end of a run.
LOOK_SECONDS = 0.05


class Slurm:
    name: ClassVar[str] = "Slurm"

    def __init__(self, gpus: int = 0) -> None:
        """With `gpus` the node has so many, made up, and a core for each; every job asks for one."""
        self.cluster = PrivateSlurm(WORK_FOLDER / "slurm", max(job_slots(), gpus), gpus)
        self._request = ("--gres=gpu:1",) if gpus else ()
        self.output = self.cluster.folder / "output"
        self._numbers = itertools.count()

    def available(self) -> str | None:
        return self.cluster.unavailable_reason()

    def up(self) -> None:
        try:
            self.cluster.up()
        except SlurmNotStarted as error:
            raise PeerFailed(str(error)) from error
        self.output.mkdir()

    def down(self) -> None:
        self.cluster.down()

    def one_by_one(self, count: int) -> float:
        name = f"run-{next(self._numbers)}"
        began = time.perf_counter()
        # A shell loop, so that no time of Python's is in the figure.
        ids = subprocess.run(
            ["sh", "-c", SUBMIT_LOOP, "sh", str(count), "--parsable", "--job-name", name, *self._request],
            env=self.cluster.env,
            cwd=self.output,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.split()
        self._wait_for_end(f"slurm-{ids[-1]}.out")
        return self._checked(time.perf_counter() - began, name, count)

    def bulk(self, count: int) -> float | None:
        return self._run_array(count, "--wrap", "true")

    def run_program(self, program: Path, count: int) -> None:
        self._run_array(count, program)

    def first_line(self) -> FirstLine:
        name = f"line-{next(self._numbers)}"
        called = time.perf_counter()
        options = ("--quiet", "--output", self.output / name, *self._request)
        self.cluster.run("sbatch", *options, "--wrap", "echo ready")
        answered = time.perf_counter()
        seen = wait_for_line(self.output, name)
        self._wait_until_none("PENDING,CONFIGURING,RUNNING,COMPLETING")
        return FirstLine(answered - called, seen - answered)

    def server_pids(self) -> dict[str, int]:
        return {name: self.cluster.daemon_pid(name) for name in ("slurmctld", "slurmdbd", "mariadbd")}

    def _run_array(self, count: int, *job: str | Path) -> float:
        name = f"run-{next(self._numbers)}"
        began = time.perf_counter()
        options = ("--parsable", "--job-name", name, "--array", f"1-{count}", "--chdir", self.output)
        number = self.cluster.run("sbatch", *options, *self._request, *job).strip()
        self._wait_for_end(f"slurm-{number}_{count}.out")
        return self._checked(time.perf_counter() - began, name, count)

    def _wait_for_end(self, last_output: str) -> None:
        """The last job's output file appears when it starts: until then the controller is left in peace."""
        wait_for_file(self.output, last_output)
        self._wait_until_none("PENDING,CONFIGURING,RUNNING")

    def _wait_until_none(self, states: str) -> None:
        while self._listed("--states", states):
            time.sleep(LOOK_SECONDS)

    def _checked(self, seconds: float, name: str, count: int) -> float:
        self._wait_until_none("COMPLETING")
        completed = len(self._listed("--states", "COMPLETED", "--name", name, "--array"))
        if completed != count:
            raise PeerFailed(f"{completed} of {count} jobs completed")
        return seconds

    def _listed(self, *options: str) -> list[str]:
        return self.cluster.run("squeue", "--noheader", *options).splitlines()
