"""Whoever enters the group of an attempt is inside, unless the attempt is over by then."""

import getpass
import subprocess
from pathlib import Path

import pytest

from heliostat.engines.folders import person_of
from heliostat.engines.local.inside import Door, inside_group


def enter(door: Door) -> subprocess.CompletedProcess[str]:
    inside = inside_group("echo inside", person_of(getpass.getuser()), door, "mark")
    try:
        return subprocess.run(
            inside.argv,
            env=dict(inside.environment),
            pass_fds=inside.descriptors,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        inside.close()


@pytest.mark.parametrize("trace", [None, "", "7 1.00 boot:3 12.1 ----\n", "7 1.00 boot ---\n"])
def test_one_that_runs_or_is_about_to_lets_others_in(tmp_path: Path, trace: str | None) -> None:
    entered, path = tmp_path / "cgroup.procs", tmp_path / "12.1.started"
    if trace is not None:
        path.write_text(trace)
    done = enter(Door([str(entered)], str(path)))
    assert (done.returncode, done.stdout) == (0, "inside\n")
    assert entered.read_text() == "0\n"


@pytest.mark.parametrize("ending", ["000+", "001-", "137+"])
def test_one_that_is_over_lets_nobody_in(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "12.1.started"
    path.write_text(f"7 1.00 boot:3 11.1 {ending}\n")
    done = enter(Door([str(tmp_path / "cgroup.procs")], str(path)))
    assert (done.returncode, done.stdout) == (125, "")


def test_a_group_that_is_gone_lets_nobody_in(tmp_path: Path) -> None:
    done = enter(Door([str(tmp_path / "gone" / "cgroup.procs")], str(tmp_path / "none")))
    assert (done.returncode, done.stdout) == (125, "")
