"""The place for a job's log cannot be used: that job waits and says why, and goes on once it can."""

import os
import subprocess
from pathlib import Path

import pytest

from support.server_process import ServerProcess
from support.waiting import wait_until


@pytest.fixture
def spoilt(server: ServerProcess) -> tuple[int, Path]:
    """A held job, and where its logs will go."""
    job = server.client.submit("echo at last", held=True, gpus=1)
    return job.id, server.home / "jobs" / str(job.id)


def test_a_job_without_a_place_for_its_log_waits_with_the_reason_and_others_run(
    server: ServerProcess, spoilt: tuple[int, Path]
) -> None:
    job_id, folder = spoilt
    folder.write_text("not a folder")
    server.client.jobs.release(job_id)
    reason = wait_until(lambda: _reason(server, job_id), "it says why it does not start")
    assert "could not be started" in reason
    assert str(folder) in reason
    others = [server.client.submit("echo fine", gpus=1) for _ in range(8)]
    server.client.wait(others, timeout=120)
    assert all(other.ok and other.logs() == "fine\n" for other in others)
    assert server.client.jobs.get(job_id).state == "pending"

    folder.unlink()
    mended = server.client.jobs.get(job_id).wait(120)
    assert (mended.exit_code, mended.logs()) == (0, "at last\n")
    server.assert_no_attempt_left()


def test_a_job_folder_that_may_not_be_written_is_told_as_such(
    server: ServerProcess, spoilt: tuple[int, Path]
) -> None:
    job_id, folder = spoilt
    folder.mkdir(mode=0o500)
    if os.geteuid() == 0:
        locked = subprocess.run(["chattr", "+i", folder], check=False, capture_output=True, text=True)
        if locked.returncode != 0:
            pytest.skip(f"this file system knows no immutable folders: {locked.stderr.strip()}")
    try:
        server.client.jobs.release(job_id)
        reason = wait_until(lambda: _reason(server, job_id), "it says why it does not start")
        assert str(folder) in reason
        assert server.client.submit("true", gpus=1).wait(120).ok
    finally:
        if os.geteuid() == 0:
            subprocess.run(["chattr", "-i", folder], check=True)
        folder.chmod(0o711)
    assert server.client.jobs.get(job_id).wait(120).ok


def _reason(server: ServerProcess, job_id: int) -> str | None:
    job = server.client.jobs.get(job_id)
    return job.reason if job.attempt > 0 and job.state == "pending" else None
