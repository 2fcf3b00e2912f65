"""What starts a command in each task of a job."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from heliostat.engines.launch_templates import (
    MAX_LISTED_HOSTS,
    launch_prefix,
    starts_own_tasks,
    task_hosts_variable,
)
from heliostat.models import Job, JobSpec, JobState, PlacementRequest, Resources

JOB = Job(
    id=12,
    kind="batch",
    name="train",
    state=JobState.STARTING,
    user="ann",
    unix_user="ann",
    project="vision",
    resources=Resources(gpus=2),
    spec=JobSpec(("python", "train.py"), template="torchrun"),
    submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
)
LINE = (
    "exec torchrun --nnodes=3 --nproc-per-node=2 "
    '--node-rank="$HELIOSTAT_TASK_INDEX" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"'
)


def _words(*command: str, tasks: int = 1, gpus: float = 2, script: str | None = None) -> tuple[str, ...]:
    spec = replace(JOB.spec, command=command, script=script)
    job = replace(JOB, spec=spec, placement=PlacementRequest(tasks), resources=Resources(gpus=gpus))
    return launch_prefix(job).apply_to(command if script is None else ("/jobs/12/1.script", *command))


def test_without_a_template_a_command_starts_as_it_is() -> None:
    assert launch_prefix(replace(JOB, spec=JobSpec(("a", "b")))).apply_to(("a", "b")) == ("a", "b")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("python", "train.py", "-x"), ("train.py", "-x")),
        (("/opt/bin/python3.11", "train.py"), ("train.py",)),
        (("train.py",), ("train.py",)),
        (("python", "-m", "pkg.train"), ("-m", "pkg.train")),
        (("-m", "pkg.train"), ("-m", "pkg.train")),
        (("python", "-u", "train.py"), ("--no-python", "python", "-u", "train.py")),
        (("./bench", "1"), ("--no-python", "./bench", "1")),
        (("/bin/sh", "-c", "a b"), ("--no-python", "/bin/sh", "-c", "a b")),
        (("python",), ("--no-python", "python")),
    ],
)
def test_torchrun_runs_python_by_itself_and_anything_else_as_it_is(
    command: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert _words(*command) == ("torchrun", "--standalone", "--nproc-per-node=2", *expected)


def test_a_script_is_run_as_it_is() -> None:
    words = _words("python", script="#!/bin/sh\n")
    assert words == (
        "torchrun",
        "--standalone",
        "--nproc-per-node=2",
        "--no-python",
        "/jobs/12/1.script",
        "python",
    )


def test_several_tasks_meet_at_the_first_one() -> None:
    assert _words("python", "train.py", tasks=3) == ("/bin/sh", "-c", LINE, "torchrun", "train.py")


@pytest.mark.parametrize(("gpus", "processes"), [(0, 1), (0.5, 1), (1, 1), (8, 8)])
def test_each_gpu_of_a_task_has_a_process(gpus: float, processes: int) -> None:
    assert _words("train.py", gpus=gpus)[2] == f"--nproc-per-node={processes}"


def test_mpirun_starts_all_tasks_itself() -> None:
    job = replace(JOB, spec=JobSpec(("./solve",), template="mpi"), placement=PlacementRequest(4))
    shell, option, line, name, *words = launch_prefix(job).apply_to(("./solve",))
    assert (shell, option, name, words) == ("/bin/sh", "-c", "mpirun", ["./solve"])
    assert line.endswith('exec mpirun -np 4 -machinefile "$HELIOSTAT_HOSTS_FILE" "$@"')
    assert starts_own_tasks(job)
    assert not starts_own_tasks(JOB)


def test_the_hosts_are_named_as_long_as_a_variable_can_hold_them() -> None:
    assert task_hosts_variable(["a", "a", "b"]) == {"HELIOSTAT_TASK_HOSTS": "a,a,b"}
    assert task_hosts_variable(["a"] * (MAX_LISTED_HOSTS + 1)) == {}


@pytest.mark.parametrize("tasks", [1, 3])
def test_spark_starts_in_each_task_and_runs_the_command_as_it_is(tasks: int) -> None:
    job = replace(JOB, spec=JobSpec(("python", "count.py"), template="spark"), placement=PlacementRequest(tasks))
    shell, option, _, *words = launch_prefix(job).apply_to(("python", "count.py"))
    assert (shell, option, words) == ("/bin/sh", "-c", ["spark", "python", "count.py"])
    assert not starts_own_tasks(job)
