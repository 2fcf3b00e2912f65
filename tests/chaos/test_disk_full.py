"""The disk that holds the data directory is full: nothing new is accepted, nothing that runs is lost."""

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import pytest

from heliostat.errors import StoreUnavailable
from support.server_process import ServerProcess
from support.waiting import wait_until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounts a small file system, so it needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=755", "none", folder]
    mounted = subprocess.run(mount, check=False, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def server(serve: Callable[..., ServerProcess], small_disk: Path) -> ServerProcess:
    return serve(small_disk / "home", cpus=8)


def fill(disk: Path) -> None:
    """To the last byte, so that not even a small write finds room."""
    _fill_up(disk / "ballast")


def _fill_up(file: Path) -> None:
    with open(file, "ab", buffering=0) as ballast:
        for size in (1 << 20, 4096, 1):
            with pytest.raises(OSError, match="No space left"):
                _write_without_end(ballast, b"\n" * size)


def _write_without_end(file: FileIO, data: bytes) -> None:
    while True:
        file.write(data)


def test_submitting_is_refused_with_a_hint_while_looking_still_works(
    server: ServerProcess, small_disk: Path
) -> None:
    done = server.client.submit("exit 4").wait(120)
    fill(small_disk)
    too_much = "x" * 100_000  # more than the journal of the database may still have room for
    with pytest.raises(StoreUnavailable) as refused:
        server.client.submit_many([{"command": too_much}] * 40)
    assert refused.value.code == "store_unavailable"
    assert "Free space" in (refused.value.hint or "")
    assert server.client.status()["pid"] == server.pid
    assert done.id in [job.id for job in server.client.jobs.list()]
    assert server.client.jobs.get(done.id).exit_code == 4
    assert server.client.nodes.list()


def test_jobs_that_end_while_it_is_full_keep_their_exit_codes_and_all_goes_on_once_there_is_room(
    server: ServerProcess, small_disk: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait_at_the_gate = f"while [ ! -e {gate} ]; do sleep 0.05; done; "
    running = [server.client.submit(wait_at_the_gate + f"exit {code}", gpus=1) for code in (0, 3, 77)]
    limited = server.client.submit("sleep 600", gpus=1, time=2)
    waiting = server.client.submit("exit 9", gpus=4)
    for job in (*running, limited):
        wait_until(lambda job=job: job.refresh().state == "running", "it runs")
    server_pid = server.pid
    fill(small_disk)
    gate.touch()
    wait_until(lambda: not server.attempt_pids(), "all of them have ended")
    wait_until(lambda: "disk is full" in _state_of_the_store(server), "the server has noticed")
    assert server.client.status()["pid"] == server_pid

    (small_disk / "ballast").unlink()
    server.client.wait([*running, limited, waiting], timeout=120)
    assert [job.exit_code for job in running] == [0, 3, 77]
    assert [str(job.state) for job in running] == ["completed", "failed", "failed"]
    assert limited.state == "timed_out"
    assert waiting.exit_code == 9
    assert server.client.submit("exit 5").wait(120).exit_code == 5
    assert server.client.status()["pid"] == server_pid
    server.assert_no_attempt_left()


def test_a_server_log_that_cannot_be_written_changes_nothing(server: ServerProcess, small_disk: Path) -> None:
    job = server.client.submit("sleep 1; exit 8")
    wait_until(lambda: job.refresh().state == "running", "it runs")
    fill(small_disk)
    _fill_up(server.home / "server.log")  # the page that it has begun still had room
    wait_until(lambda: not server.attempt_pids(), "it has ended")
    wait_until(lambda: "disk is full" in _state_of_the_store(server), "the server has noticed")
    (small_disk / "ballast").unlink()
    assert job.wait(120).exit_code == 8


def test_the_time_limit_holds_when_not_even_an_empty_file_can_be_made(
    server: ServerProcess, small_disk: Path
) -> None:
    job = server.client.submit("sleep 600", time=2)
    wait_until(lambda: job.refresh().state == "running", "it runs")
    _use_up_all_inodes(small_disk)
    wait_until(lambda: not server.attempt_pids(), "the time limit has ended it", 120)


def _use_up_all_inodes(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=200", disk], check=True)
    with pytest.raises(OSError, match="No space left"):
        _make_files_without_end(disk)


def _make_files_without_end(disk: Path) -> None:
    for number in itertools.count():
        (disk / f"inode-{number}").touch()


def _state_of_the_store(server: ServerProcess) -> str:
    try:
        server.client.submit("true")
    except StoreUnavailable as error:
        return error.message
    return "writable"
