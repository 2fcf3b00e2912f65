"""What ends a job that takes too much, and that nothing of it is left."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.engines.local.cgroups import CgroupsUnavailable, find_cgroups
from integration.running_server import RunningServer, wait_for

MOST_PROCESSES = 40
FORKS = """
import os, time
made = 0
try:
    while made < 500:
        if os.fork() == 0: time.sleep(600)
        made += 1
except OSError:
    print(made)
"""
BURNS = """
import os, time
started = time.monotonic()
for _ in range(3):
    os.fork() or os.execvp("timeout", ["timeout", "1.5", "sh", "-c", "while :; do :; done"])
for _ in range(3):
    os.wait()
used = os.times()
print((used.children_user + used.children_system) / (time.monotonic() - started))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    settings = f'server.simulate_gpus = "2xA100"\nserver.node_name = "here"\nqueue.pids_limit = {MOST_PROCESSES}\n'
    settings += 'storage.log_max_size = "1M"\n'
    server = RunningServer(settings)
    yield server
    server.remove()


def needs_controller(name: str) -> None:
    found = find_cgroups(f"look-{os.getpid()}")
    if isinstance(found, CgroupsUnavailable):
        pytest.skip(found.reason)
    found.remove()
    if name not in found.controllers:
        pytest.skip(f"this machine has no {name} controller for cgroups")


def with_word(word: str) -> list[str]:
    """The processes that have the word on their command line."""
    return [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if word.encode() in _read(path) and path.parent.name != str(os.getpid())
    ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_job_that_takes_more_than_its_memory_is_told_so_and_what_to_do(server: RunningServer) -> None:
    needs_controller("memory")
    job = server.run(command=["python3", "-c", "x = bytearray(400 * 2**20)"], memory=64)
    assert (job["state"], job["exit_code"]) == ("failed", 137)
    assert job["reason"] == "out of memory: it used more than its 64 MiB of memory; request more with --memory"


def test_a_job_whose_child_runs_out_of_memory_and_that_goes_on_is_not_out_of_memory(server: RunningServer) -> None:
    needs_controller("memory")
    line = 'python3 -c "x = bytearray(400 * 2**20)"; echo went on'
    job = server.run(command=line, memory=64)
    if job["state"] == "completed":  # cgroup v1 ends one process; v2 ends all of them
        assert (job["exit_code"], job["reason"]) == (0, None)
    else:
        assert job["reason"].startswith("out of memory")


def test_a_job_has_only_so_many_processes_and_others_can_still_start(server: RunningServer) -> None:
    needs_controller("pids")
    job_id = server.submit(command=["python3", "-c", FORKS], cpus=1, memory=512)
    beside = server.run(command="echo fine", cpus=1, memory=64)
    assert beside["state"] == "completed"
    assert server.finished(job_id)["state"] == "completed"
    assert MOST_PROCESSES - 5 < int(server.output(job_id)) < MOST_PROCESSES


def test_a_job_gets_no_more_than_its_cpus(server: RunningServer) -> None:
    needs_controller("cpu")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cpus to see that only one of them is used")
    job = server.run(command=["python3", "-c", BURNS], cpus=1)
    assert float(server.output(job["id"])) < 1.25


@pytest.mark.parametrize(
    "leave",
    [
        "sleep WORD & echo left",
        "setsid sleep WORD & echo left",
        "setsid sh -c 'sleep WORD & sleep WORD' & echo left",
        "env -i setsid sleep WORD >/dev/null 2>&1 & echo left",
        "trap '' TERM HUP; nohup setsid sleep WORD & echo left",
    ],
)
def test_what_a_job_leaves_behind_is_gone_before_the_next_gets_its_gpus(server: RunningServer, leave: str) -> None:
    word = f"77{time.monotonic_ns()}"
    first = server.submit(command=leave.replace("WORD", word), gpus=2, cpus=1)
    looks = f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep [{word[0]}]{word[1:]}' || true"
    second = server.submit(command=looks, gpus=2, cpus=1)
    assert server.finished(first)["state"] == "completed"
    assert with_word(word) == []
    assert server.finished(second)["state"] == "completed"
    assert server.output(second) == "0\n"
    assert server.show(first)["devices"] == server.show(second)["devices"]


def test_the_middle_of_a_log_over_its_limit_is_removed_while_the_job_runs_and_after_it(
    server: RunningServer,
) -> None:
    jobs = [server.submit(command=f"seq 1 400000; {then}", cpus=1) for then in ("sleep 600", "true")]
    server.finished(jobs[1])
    for job_id in jobs:
        after_hole = f"/jobs/{job_id}/logs?offset=200000"
        wait_for(lambda at=after_hole: b"[Heliostat removed" in server.ask("GET", at).body, "output was removed")
        assert server.output(job_id).startswith("1\n2\n")
        rest = server.ask("GET", after_hole).body
        assert rest.endswith(b"\n399999\n400000\n")
        assert len(rest) < 2**20
    server.ask("POST", f"/jobs/{jobs[0]}/cancel?force=true")


def test_the_time_limit_ends_a_job_and_says_so(server: RunningServer) -> None:
    word = f"78{time.monotonic_ns()}"
    job = server.run(command=f"sleep {word} & sleep {word}", time_limit=1)
    assert (job["state"], job["reason"]) == ("timed_out", "it reached its time limit of 1 s")
    assert with_word(word) == []


def test_a_job_that_ignores_the_end_of_its_time_is_killed_after_its_grace(server: RunningServer) -> None:
    word = f"79{time.monotonic_ns()}"
    line = f"trap '' TERM; (trap '' TERM; setsid sleep {word}) & while :; do sleep 1; done"
    job = server.run(command=line, time_limit=1, grace_seconds=0.3)
    assert job["state"] == "timed_out"
    assert with_word(word) == []


def test_the_time_limit_holds_while_the_server_is_down(server: RunningServer) -> None:
    word = f"80{time.monotonic_ns()}"
    job_id = server.submit(command=["sleep", word], time_limit=6, grace_seconds=0.3)
    wait_for(lambda: with_word(word), "the job to run")
    server.process.kill()  # to stop in order may take a busy machine longer than the job has
    server.process.wait(120)
    try:
        assert with_word(word), "a running job goes on without the server"
        wait_for(lambda: not with_word(word), "the time limit to end the job")
    finally:
        server.start()
    assert server.finished(job_id)["state"] == "timed_out"


def test_cancelling_asks_first_and_lets_the_job_say_goodbye(server: RunningServer) -> None:
    line = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    job_id = server.submit(command=line, grace_seconds=20)
    wait_for(lambda: server.output(job_id) == "ready\n", "the job to be ready")
    server.ask("POST", f"/jobs/{job_id}/cancel")
    job = server.finished(job_id)
    assert (job["state"], job["exit_code"]) == ("cancelled", 3)
    assert server.output(job_id) == "ready\nbye\n"


def test_cancelling_a_job_that_will_not_hear_kills_its_whole_tree_after_the_grace(server: RunningServer) -> None:
    word = f"81{time.monotonic_ns()}"
    line = f"trap '' TERM; (setsid sleep {word} &) ; (sleep {word} &); echo ready; while :; do sleep 1; done"
    job_id = server.submit(command=line, grace_seconds=0.3)
    wait_for(lambda: server.output(job_id) == "ready\n", "the job to be ready")
    assert with_word(word)
    server.ask("POST", f"/jobs/{job_id}/cancel")
    assert server.finished(job_id)["state"] == "cancelled"
    assert with_word(word) == []


def test_a_requeued_job_runs_again_in_the_same_folder_with_logs_of_its_own(server: RunningServer) -> None:
    line = "ls; touch seen; echo $HELIOSTAT_ATTEMPT; [ $HELIOSTAT_ATTEMPT = 2 ] || sleep 600"
    job_id = server.submit(command=line)
    wait_for(lambda: server.output(job_id) == "1\n", "the first attempt")
    server.ask("POST", f"/jobs/{job_id}/requeue")
    job = server.finished(job_id)
    assert (job["state"], job["attempt"]) == ("completed", 2)
    assert server.output(job_id) == "seen\n2\n"
    assert server.ask("GET", f"/jobs/{job_id}/logs?attempt=1").body == b"1\n"
