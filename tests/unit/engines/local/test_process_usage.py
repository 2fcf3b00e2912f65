"""What processes have used, read from /proc of this machine."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from heliostat.engines.local.process_usage import (
    ProcessUsage,
    host_cpu_seconds,
    host_memory_used_mib,
    read_process_usage,
    read_usage_of_trees,
)

BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
HOLD = "held = b'x' * (50 << 20)\n"
WAIT = "print(flush=True)\nimport sys; sys.stdin.read()\n"


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[bytes]]:
    """A shell that leads a session, with a child that has burnt 0.3 s and one that lives and holds 50 MiB."""
    script = f'"{sys.executable}" -c "$BURN"; "{sys.executable}" -c "$HOLD$WAIT"; :'
    with subprocess.Popen(
        ["sh", "-c", script],
        env={**os.environ, "BURN": BURN, "HOLD": HOLD, "WAIT": WAIT},
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.communicate(b"")


def test_a_tree_is_known_by_its_leader_who_is_not_counted(leader: subprocess.Popen[bytes]) -> None:
    used = read_usage_of_trees({"12.1": leader.pid})["12.1"]
    assert used.memory_mib is not None
    assert 50 <= used.memory_mib <= 90
    assert used.cpu_seconds is not None
    assert used.cpu_seconds < 0.3  # that of the child that is over is its parent's, the leader's


def test_children_that_are_over_count_for_who_waited_for_them(leader: subprocess.Popen[bytes]) -> None:
    used = read_process_usage([leader.pid])
    assert used.cpu_seconds is not None
    assert 0.25 <= used.cpu_seconds <= 3


def test_who_is_gone_has_used_nothing_that_is_known() -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    assert read_process_usage([done.pid]) == ProcessUsage()
    assert read_usage_of_trees({"12.1": done.pid}) == {}


def test_the_machine_is_busy_while_we_are() -> None:
    before, end = host_cpu_seconds(), time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert host_cpu_seconds() - before >= 0.15
    assert host_memory_used_mib() > 50
