"""Jobs that misbehave: others go on, the server stays small, and nothing of them is left."""

import contextlib
import threading
import time
from pathlib import Path

import pytest

from heliostat.client import JobHandle
from heliostat.errors import HeliostatError
from support.server_process import ServerProcess
from support.waiting import wait_until

_FORKS = """
import os, sys, time
for number in range(100):
    if os.fork() == 0:
        if number % 3 == 0:
            os.setsid()
        if number % 3 == 1:
            os.setpgid(0, 0)
        if number % 10 == 0 and os.fork():
            os._exit(0)
        time.sleep(600)
        os._exit(0)
print("forked", flush=True)
time.sleep(float(sys.argv[1]))
"""


# First 255 shells that start a program each second. Once there is a file `go`, ever more of them until no more
# can be started: those may all end at that moment, before anybody has counted them.
_BOMB = """
many() { [ $1 -gt 6 ] || { many $(($1 + 1)) & many $(($1 + 1)) & }; while :; do sleep 1; done; }
ever_more() { ever_more | ever_more & }
many 0 & while [ ! -e go ]; do sleep 0.1; done; ever_more; : >gone; exec sleep 600
"""


def runs(job: JobHandle) -> bool:
    return job.refresh().state == "running"


def assert_others_are_unaffected(server: ServerProcess) -> None:
    other = server.client.submit("echo small", gpus=1, cpus=1, memory=64).wait(120)
    assert (other.exit_code, other.logs()) == (0, "small\n")


def test_a_job_that_ignores_term_is_killed_after_its_grace(server: ServerProcess, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    job = server.client.submit(
        f"trap '' TERM INT HUP; touch {ready}; while :; do sleep 1; done", gpus=4, grace_seconds=1.0
    )
    wait_until(ready.exists, "it ignores TERM")
    asked = time.monotonic()
    job.cancel()
    other = server.client.submit("true", gpus=0, cpus=1, memory=64).wait(120)
    assert other.ok
    job.wait(120)
    assert job.state == "cancelled"
    assert time.monotonic() - asked >= 0.9
    assert_others_are_unaffected(server)
    server.assert_no_attempt_left()


@pytest.mark.parametrize("how", ["cancelled", "ends by itself"])
def test_a_hundred_children_in_sessions_of_their_own_are_all_reaped(server: ServerProcess, how: str) -> None:
    seconds = "600" if how == "cancelled" else "0.5"
    job = server.client.submit(["python3", "-c", _FORKS, seconds], gpus=4, cpus=1, memory=512, grace_seconds=0.5)
    wait_until(lambda: "forked" in job.logs("stdout"), "it has forked")
    if how == "cancelled":
        wait_until(lambda: len(server.attempt_pids(f"{job.id}.1")) > 100, "all its children are there")
        job.cancel()
    after = server.client.submit("true", gpus=4)
    job.wait(120)
    assert job.state == ("cancelled" if how == "cancelled" else "completed")
    assert not server.attempt_pids(f"{job.id}.1"), "its end was told while it still had processes"
    assert after.wait(120).ok
    server.assert_no_attempt_left()


def test_a_job_that_forks_without_end_hits_its_own_limit_only(server: ServerProcess, tmp_path: Path) -> None:
    bomb = server.client.submit(_BOMB, cpus=1, memory=256, grace_seconds=0.5, time=600, workdir=str(tmp_path))
    wait_until(lambda: runs(bomb), "it runs")
    wait_until(lambda: len(server.attempt_pids(f"{bomb.id}.1")) > 200, "it has forked a lot")
    (tmp_path / "go").touch()
    wait_until((tmp_path / "gone").exists, "it forks without end")
    assert_others_are_unaffected(server)
    bomb.cancel()
    bomb.wait(120)
    server.assert_no_attempt_left()


def test_a_job_that_prints_without_measure_neither_fills_the_server_nor_stops_others(
    server: ServerProcess,
) -> None:
    size = 200 * 10**6
    assert_others_are_unaffected(server)
    before = server.memory_mib
    job = server.client.submit(f"head -c {size} /dev/zero | tr '\\0' x", cpus=1, memory=64)
    peak = _Peak(server)
    _follow_a_part_of(job, 10**6)
    assert_others_are_unaffected(server)
    job.wait(120)
    assert job.ok
    part = server.client.logs.read_slice(job.id, offset=-10)
    assert (part.data, part.size) == (b"x" * 10, size)
    assert peak.stop() < before + 100
    server.assert_no_attempt_left()


def test_a_follower_who_does_not_read_costs_the_server_nothing(server: ServerProcess) -> None:
    size = 200 * 10**6
    job = server.client.submit(f"head -c {size} /dev/zero | tr '\\0' x", cpus=1, memory=64)
    with server.client._transport.stream_lines(f"/jobs/{job.id}/logs/follow") as lines:
        assert next(lines)
        before = server.memory_mib
        peak = _Peak(server)
        job.wait(120)
        assert_others_are_unaffected(server)
        assert peak.stop() < before + 60
    assert job.ok
    server.assert_no_attempt_left()


def test_a_log_that_cannot_be_read_is_a_clear_error_and_not_a_hang(server: ServerProcess) -> None:
    job = server.client.submit("echo hello").wait(120)
    log = server.home / "jobs" / str(job.id) / "1.stdout"
    log.unlink()
    log.mkdir()
    with pytest.raises(HeliostatError) as raised:
        job.logs("stdout")
    assert raised.value.code == "log_unreadable"
    assert raised.value.hint
    assert_others_are_unaffected(server)


class _Peak:
    """The most memory the server has had, looked at all the time."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._most = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self._most

    def _look(self) -> None:
        while not self._stop.wait(0.02):
            with contextlib.suppress(OSError, IndexError):  # a test that failed has ended the server
                self._most = max(self._most, self._server.memory_mib)


def _follow_a_part_of(job: JobHandle, most: int) -> None:
    """As a reader who loses interest after so many characters."""
    read = 0
    for chunk in job.follow():
        read += len(chunk.text)
        if read > most:
            return
    raise AssertionError(f"the log ended after {read} characters")
