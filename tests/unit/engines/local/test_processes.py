"""Processes told apart from later ones with the same number."""

import os
import platform
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heliostat.engines.local import processes
from heliostat.engines.local.processes import belongs_to_user
from support.waiting import wait_until

Start = Callable[..., "subprocess.Popen[str]"]
MARKER = f"HELIOSTAT_ATTEMPT_ID={os.getpid()}.1"
READY_AND_WAIT = "print('ready', flush=True); import time; time.sleep(600)"
EXIT_OF_ONE_THREAD = {"x86_64": 60, "aarch64": 93}.get(platform.machine())


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python code in a session of its own and waits until it says that it is ready."""
    started = []

    def run(code: str = READY_AND_WAIT, marker: str = "", **options: object) -> "subprocess.Popen[str]":
        name, _, value = marker.partition("=")
        environment = {"PATH": os.environ["PATH"], **({name: value} if name else {})}
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def started_at(process: "subprocess.Popen[str]") -> int:
    found = processes.process_start_time(process.pid)
    assert found is not None
    return found


def end_as_zombie(process: "subprocess.Popen[str]") -> None:
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_the_start_time_is_the_one_the_kernel_gives() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    before = time.clock_gettime(time.CLOCK_BOOTTIME) * ticks
    child = subprocess.Popen(["sleep", "600"])
    after = time.clock_gettime(time.CLOCK_BOOTTIME) * ticks
    try:
        assert before - 1 <= started_at(child) <= after
    finally:
        child.kill()
        child.wait()


def test_a_name_with_spaces_and_brackets_is_read_right(start: Start) -> None:
    plain = start()
    code = "open('/proc/self/comm', 'w').write(') R 1 (x'); "
    odd = start(code + READY_AND_WAIT)
    assert 0 <= started_at(odd) - started_at(plain) <= 20 * os.sysconf("SC_CLK_TCK")


def test_a_number_that_is_free_has_no_start_time(start: Start) -> None:
    process = start()
    began = started_at(process)
    process.kill()
    process.wait()
    assert processes.process_start_time(process.pid) is None
    assert processes.is_running(process.pid, began) is False
    assert processes.open_pidfd(process.pid, began) is None
    assert processes.send_signal(process.pid, began, signal.SIGTERM) is False


def test_a_zombie_has_a_start_time_but_does_not_run(start: Start) -> None:
    process = start()
    began = started_at(process)
    assert processes.is_running(process.pid, began)
    end_as_zombie(process)
    assert processes.process_start_time(process.pid) == began
    assert processes.is_running(process.pid, began) is False
    assert processes.open_pidfd(process.pid, began) is None


@pytest.mark.skipif(EXIT_OF_ONE_THREAD is None, reason="the number of the exit call is not known here")
def test_a_process_whose_main_thread_has_ended_still_runs(start: Start) -> None:
    code = f"""
import ctypes, threading, time
threading.Thread(target=lambda: time.sleep(600)).start()
print("ready", flush=True)
ctypes.CDLL(None).syscall({EXIT_OF_ONE_THREAD}, 0)
"""
    process = start(code)
    deadline = time.monotonic() + 60
    while b") Z " not in processes._read(f"/proc/{process.pid}/stat"):
        assert time.monotonic() < deadline
    assert processes.is_running(process.pid, started_at(process))


def test_another_process_with_the_same_number_is_not_taken_for_it(start: Start) -> None:
    process = start()
    other = started_at(process) - 1
    assert processes.is_running(process.pid, other) is False
    assert processes.open_pidfd(process.pid, other) is None
    assert processes.send_signal(process.pid, other, signal.SIGKILL) is False
    assert process.poll() is None


def test_a_pidfd_tells_of_the_end(start: Start) -> None:
    process = start()
    descriptor = processes.open_pidfd(process.pid, started_at(process))
    assert descriptor is not None
    try:
        assert select.select([descriptor], [], [], 0)[0] == []
        assert processes.send_signal(process.pid, started_at(process), signal.SIGTERM)
        assert select.select([descriptor], [], [], 20)[0] == [descriptor]
    finally:
        os.close(descriptor)
    assert process.wait() == -signal.SIGTERM


def test_no_descriptor_is_left_open_by_a_mismatch(start: Start) -> None:
    process = start()
    before = len(os.listdir("/proc/self/fd"))
    processes.open_pidfd(process.pid, 1)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_init_and_groups_of_processes_are_never_signalled(pid: int) -> None:
    assert processes.send_signal(pid, processes.process_start_time(1) or 0, 0) is False


def test_we_do_not_signal_ourselves() -> None:
    assert (
        processes.send_signal(os.getpid(), processes.process_start_time(os.getpid()) or 0, signal.SIGKILL) is False
    )


def test_the_boot_has_an_identity() -> None:
    assert len(processes.boot_id()) == 36
    assert processes.boot_id() == processes.boot_id()


def test_members_are_those_with_the_marker_wherever_they_are(start: Start) -> None:
    in_session, elsewhere = start(marker=MARKER), start(marker=MARKER)
    start(marker=f"{MARKER}0")
    start(marker=f"X{MARKER}")
    found = processes.find_attempt_pids(in_session.pid, [MARKER])
    assert sorted(found) == sorted([in_session.pid, elsewhere.pid])


def test_members_without_the_marker_count_while_the_session_is_surely_ours(start: Start) -> None:
    wiped = start()
    assert processes.find_attempt_pids(wiped.pid, [MARKER]) == []
    assert processes.find_attempt_pids(wiped.pid, [MARKER], leader_start_time=started_at(wiped) - 1) == []
    assert processes.find_attempt_pids(wiped.pid, [MARKER], leader_start_time=started_at(wiped)) == [wiped.pid]


def test_a_member_with_the_marker_vouches_for_its_session(start: Start) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '600'], env={}, stdout=-3); " + READY_AND_WAIT
    leader = start(code, marker=MARKER)
    found = processes.find_attempt_pids(leader.pid, [MARKER])
    assert len(found) == 2
    assert leader.pid in found
    assert len(processes.find_attempt_pids(leader.pid, [MARKER], spare=[leader.pid])) == 1
    assert processes.kill_attempt_processes(leader.pid, [MARKER]) == []


@pytest.mark.parametrize("session_id", [-1, 0, 1])
def test_kernel_threads_and_the_session_of_init_are_never_members(session_id: int) -> None:
    assert (
        processes.find_attempt_pids(session_id, [MARKER], leader_start_time=processes.process_start_time(1)) == []
    )


def test_neither_zombies_nor_we_are_members(start: Start) -> None:
    process = start(marker=MARKER)
    end_as_zombie(process)
    assert processes.find_attempt_pids(process.pid, [MARKER]) == []
    assert os.getpid() not in processes.find_attempt_pids(
        os.getsid(0), [MARKER], leader_start_time=processes.process_start_time(os.getsid(0))
    )


def test_kill_members_ends_what_forks_on_and_ignores_term(start: Start) -> None:
    code = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
for _ in range(400):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
time.sleep(600)
"""
    process = start(code, marker=MARKER)
    bystander = start()
    assert processes.kill_attempt_processes(process.pid, [MARKER], timeout_seconds=30) == []
    assert process.wait(120) == -signal.SIGKILL
    assert processes.find_attempt_pids(process.pid, [MARKER]) == []
    assert bystander.poll() is None


def test_kill_members_says_what_is_left_when_the_patience_is_over(start: Start) -> None:
    process = start(marker=MARKER)
    assert processes.kill_attempt_processes(process.pid, [MARKER], timeout_seconds=0) == [process.pid]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes as someone else")
def test_what_we_may_not_read_is_not_ours(start: Start) -> None:
    process = start(marker=MARKER)
    code = f"""
import os
from heliostat.engines.local import processes
os.setgroups([]); os.setgid(65534); os.setuid(65534)
found = processes.find_attempt_pids({process.pid}, [{MARKER!r}])
print(found, processes.kill_attempt_processes({process.pid}, [{MARKER!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[] []\n", done.stderr
    assert process.poll() is None


def test_a_process_that_becomes_another_program_is_not_missed(tmp_path: Path) -> None:
    again = tmp_path / "again.sh"
    again.write_text('[ "$1" -gt 100000 ] || exec /bin/sh "$0" $(($1 + 1))\n')  # not for ever, if nobody ends it
    name, _, value = MARKER.partition("=")
    process = subprocess.Popen(["/bin/sh", again, "0"], env={name: value}, start_new_session=True)
    try:
        looks = [processes.find_attempt_pids(0, [MARKER]) for _ in range(200)]
    finally:
        process.kill()
        process.wait()
    assert looks == [[process.pid]] * 200


@pytest.mark.skipif(os.geteuid() != 0, reason="runs a process as somebody else, so it needs root")
def test_whose_a_process_is() -> None:
    assert belongs_to_user(os.getpid(), "root", 0)
    with subprocess.Popen(["setpriv", "--reuid=65534", "sleep", "60"]) as other:
        wait_until(lambda: os.stat(f"/proc/{other.pid}").st_uid == 65534, "it is nobody")
        assert belongs_to_user(other.pid, "nobody", 65534)
        assert not belongs_to_user(other.pid, "root", 0)
        other.kill()
    assert not belongs_to_user(other.pid, "nobody", 65534)
