"""Runs inside HyperQueue's own environment; imports nothing of ours.

Reads requests from standard input, one JSON list per line, and answers each with one line of JSON. Ends, and
stops the cluster, when its input closes.

HyperQueue's `wait_for_jobs` looks once per second, which would hide most of a short run. The end is seen from
the files instead: every task has its output file, kept, and its error file, which HyperQueue removes when the
task has finished. All outputs there and no error file left: all done.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from hyperqueue import Client, Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
from hyperqueue.job import SubmittedJob
from hyperqueue.output import StdioDef

LOOK_SECONDS = 0.01
LINE_LOOK_SECONDS = 0.001
GIVE_UP_SECONDS = 600


class Driver:
    def __init__(self, client: Client) -> None:
        self.client = client

    def ready(self) -> bool:
        return True

    def one_by_one(self, count: int) -> float:
        folder = Path(tempfile.mkdtemp(dir="."))
        began = time.perf_counter()
        jobs = [self.client.submit(_noops(folder, 1)) for _ in range(count)]
        return self._seconds_to_end(began, jobs, folder, count)

    def bulk(self, count: int) -> float:
        folder = Path(tempfile.mkdtemp(dir="."))
        began = time.perf_counter()
        jobs = [self.client.submit(_noops(folder, count))]
        return self._seconds_to_end(began, jobs, folder, count)

    def first_line(self) -> tuple[float, float]:
        path = Path(tempfile.mkdtemp(dir=".")).resolve() / "output"
        job = Job()
        job.program(["sh", "-c", "echo ready"], stdout=str(path))
        called = time.perf_counter()
        submitted = self.client.submit(job)
        answered = time.perf_counter()
        while not (path.exists() and b"\n" in path.read_bytes()):
            time.sleep(LINE_LOOK_SECONDS)
        seen = time.perf_counter()
        self.client.wait_for_jobs([submitted])
        return answered - called, seen - answered

    def _seconds_to_end(self, began: float, jobs: list[SubmittedJob], folder: Path, count: int) -> float:
        seconds = _seen_done(folder, count) - began
        self.client.wait_for_jobs(jobs)  # raises when a task failed
        return seconds


def _noops(folder: Path, count: int) -> Job:
    job = Job()
    stem = str(folder.resolve() / "%{JOB_ID}-%{TASK_ID}")
    error = StdioDef.remove_if_finished(f"{stem}.err")
    for _ in range(count):
        job.program(["true"], stdout=f"{stem}.out", stderr=error)
    return job


def _seen_done(folder: Path, count: int) -> float:
    """The first of two looks in a row that show every task done: one alone may fall between two files."""
    deadline = time.perf_counter() + GIVE_UP_SECONDS
    first = None
    while (now := time.perf_counter()) < deadline:
        if not _all_done(folder, count):
            first = None
        elif first is not None:
            return first
        else:
            first = now
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"{count} tasks did not end in {GIVE_UP_SECONDS} s")


def _all_done(folder: Path, count: int) -> bool:
    names = os.listdir(folder)
    outputs = sum(name.endswith(".out") for name in names)
    return outputs == count == len(names)


def main() -> None:
    # The cluster prints a banner on standard output: keep the real one for answers, send the rest to the log.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with LocalCluster(worker_config=WorkerConfig(cores=int(sys.argv[1]))) as cluster:
        driver = Driver(cluster.client())
        for line in sys.stdin:
            verb, *arguments = json.loads(line)
            print(json.dumps(getattr(driver, verb)(*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
