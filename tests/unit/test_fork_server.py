"""What the tests themselves stand on: a process made by forking is one of its own."""

import os
import signal
import subprocess
import tempfile

import pytest

from support import fork_server
from support.waiting import wait_until

ENVIRON = {"HELIOSTAT_HOME": "/somewhere", "PATH": "/usr/bin"}


def test_it_has_the_environment_folder_session_and_files_it_was_given() -> None:
    code = (
        "import os, sys; assert 'heliostat.server' in sys.modules\n"
        "print(sorted(os.environ), os.getcwd(), os.getsid(0) == os.getpid(), sys.stdin.read())\n"
        "print(sorted(os.listdir('/proc/self/fd')), flush=True); raise SystemExit(3)"
    )
    with tempfile.TemporaryFile() as log:
        process = fork_server.fork_process(code, ENVIRON, log.fileno(), own_session=True)
        assert process.wait(120) == 3
        assert process.poll() == 3
        log.seek(0)
        assert log.read().decode().splitlines() == ["['HELIOSTAT_HOME', 'PATH'] / True ", "['0', '1', '2', '3']"]


def test_it_can_be_killed_and_is_gone_then() -> None:
    process = fork_server.fork_process("import time; time.sleep(600)", ENVIRON, 2)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait(120) == -signal.SIGKILL
    process.kill()  # nobody else who got its number
    wait_until(lambda: not os.path.exists(f"/proc/{process.pid}"), "its number is free")


def test_what_an_interpreter_reads_at_its_birth_needs_one_of_its_own() -> None:
    assert fork_server.can_fork_with({**os.environ, "HELIOSTAT_HOME": "/x", "SLURM_CONF": "/y"})
    assert not fork_server.can_fork_with({**os.environ, "LD_PRELOAD": "/x"})
    assert not fork_server.can_fork_with({name: text for name, text in os.environ.items() if name != "PATH"})
