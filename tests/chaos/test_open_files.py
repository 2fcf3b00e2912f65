"""Somebody opens connections until the server has no file descriptor left."""

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

from support.server_process import ServerProcess
from support.waiting import wait_until

OPEN_FILES = 96


def test_jobs_that_end_while_no_file_can_be_opened_are_told_right_once_one_can(
    serve: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = serve(cpus=8, open_files=OPEN_FILES)
    gate = tmp_path / "gate"
    script = f"while [ ! -e {gate} ]; do sleep 0.05; done; exit "
    jobs = [server.client.submit(script + str(code), gpus=1) for code in (0, 3, 9)]
    for job in jobs:
        wait_until(lambda job=job: job.refresh().state == "running", "it runs")
    with contextlib.ExitStack() as connections:
        for _ in range(2 * OPEN_FILES):
            connection = connections.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(5)
            connection.connect(str(server.home / "heliostat.sock"))
        wait_until(lambda: _open_files(server) >= OPEN_FILES, "no descriptor is left")
        gate.touch()
        wait_until(lambda: not server.attempt_pids(), "all of them have ended")
    server.client.close()
    server.client.wait(jobs, timeout=120)
    assert [job.exit_code for job in jobs] == [0, 3, 9]
    assert [job.attempt for job in jobs] == [1, 1, 1]
    assert server.client.submit("exit 5", gpus=4).wait(120).exit_code == 5
    server.assert_no_attempt_left()


def _open_files(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
