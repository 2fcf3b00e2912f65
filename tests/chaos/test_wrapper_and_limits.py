"""What holds an attempt together is killed, or the server is down when it is needed."""

import os
import signal
from pathlib import Path

from heliostat.client import JobHandle
from support.server_process import ServerProcess
from support.waiting import wait_until


def wrapper_pid(server: ServerProcess, attempt_id: str) -> int:
    return int((server.home / "attempts" / f"{attempt_id}.started").read_text().split()[0])


def running(server: ServerProcess, script: str, **options: object) -> JobHandle:
    job = server.client.submit(script, gpus=4, cpus=1, memory=64, **options)
    return wait_until(lambda: job if "ready" in job.logs("stdout") else None, "it runs")


def test_a_killed_wrapper_leaves_no_process_and_the_job_is_lost_and_its_devices_are_free(
    server: ServerProcess,
) -> None:
    job = running(server, "setsid sleep 600 & echo ready; sleep 600", time="10m")
    os.kill(wrapper_pid(server, f"{job.id}.1"), signal.SIGKILL)
    job.wait(120)
    assert job.state == "lost"
    assert "killed" in (job.reason or "")
    assert server.client.submit("true", gpus=4).wait(120).ok
    server.assert_no_attempt_left()


def test_a_job_whose_wrapper_was_killed_is_tried_again_if_it_may_be(server: ServerProcess) -> None:
    script = 'echo ready; [ "$HELIOSTAT_ATTEMPT" = 1 ] && sleep 600; exit 6'
    job = running(server, script, time="10m", max_retries=1)
    os.kill(wrapper_pid(server, f"{job.id}.1"), signal.SIGKILL)
    job.wait(120)
    assert (job.state, job.exit_code, job.attempt) == ("failed", 6, 2)
    first, second = job.refresh().data["attempts"]
    assert (first["state"], second["exit_code"]) == ("lost", 6)
    server.assert_no_attempt_left()


def test_a_wrapper_killed_while_the_server_is_down_is_found_out_at_the_next_start(server: ServerProcess) -> None:
    job = running(server, "echo ready; sleep 600", time="10m")
    server.kill()
    os.kill(wrapper_pid(server, f"{job.id}.1"), signal.SIGKILL)
    server.start()
    job.wait(120)
    assert job.state == "lost"
    assert server.client.submit("true", gpus=4).wait(120).ok
    server.assert_no_attempt_left()


def test_the_time_limit_ends_a_job_while_the_server_is_down(server: ServerProcess, tmp_path: Path) -> None:
    job = running(server, "echo ready; sleep 600", time=2)
    stubborn = server.client.submit(
        "trap '' TERM; echo ready; while :; do sleep 1; done", cpus=1, memory=64, time=2, grace_seconds=0.5
    )
    wait_until(lambda: "ready" in stubborn.logs("stdout"), "the stubborn one runs")
    server.kill()
    for one in (job, stubborn):
        wait_until(lambda one=one: not server.attempt_pids(f"{one.id}.1"), "its time limit has ended it", 120)
    server.start()
    server.client.wait([job, stubborn], timeout=120)
    assert [str(one.state) for one in (job, stubborn)] == ["timed_out", "timed_out"]
    assert "time limit of 2 s" in (job.reason or "")
    assert server.client.submit("true", gpus=4).wait(120).ok
    server.assert_no_attempt_left()


def test_a_cancel_that_was_answered_is_carried_out_although_the_server_died_at_once(server: ServerProcess) -> None:
    job = running(server, "trap '' TERM; echo ready; while :; do sleep 1; done", grace_seconds=1.0)
    job.cancel()
    server.kill()
    server.start()
    job.wait(120)
    assert job.state == "cancelled"
    server.assert_no_attempt_left()
