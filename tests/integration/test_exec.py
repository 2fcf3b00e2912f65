"""A command inside a running job of this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.client import Client
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.job_exec import exec_in_job, start_sleeping_job
from support.terminal import TerminalProcess

SECRET = {"TOKEN": "sword fish"}


@pytest.fixture(scope="module")
def job(server: RunningServer) -> Iterator[int]:
    job = start_sleeping_job(server, gpus=2, env=SECRET)
    yield job
    server.ask("POST", f"/jobs/{job}/cancel")


def helio(server: RunningServer, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "heliostat.cli.main", *words]
    environment = {**os.environ, "HELIOSTAT_HOME": str(server.home)}
    return subprocess.run(argv, env=environment, input=stdin, capture_output=True, timeout=60, check=False)


def test_a_command_has_the_jobs_environment_devices_folder_and_cgroup(server: RunningServer, job: int) -> None:
    devices = (
        "echo $TOKEN; echo $HELIOSTAT_JOB_ID; echo $CUDA_VISIBLE_DEVICES | tr , '\\n' | grep -c .; pwd; umask"
    )
    ran = exec_in_job(server, job, "sh", "-c", f"{devices}; cat /proc/self/cgroup")
    token, number, gpus, folder, umask, *cgroups = ran.stdout.splitlines()
    assert (token, number, gpus) == ("sword fish", str(job), "2")
    assert (folder, umask) == (f"{server.home}/jobs/{job}/work", "0022")
    if Path("/sys/fs/cgroup").is_dir() and not server.ask("GET", "/nodes").json["items"][0]["notes"]:
        assert any(f"/{job}.1" in line for line in cgroups), cgroups


def test_streams_come_apart_and_the_exit_code_is_the_commands(server: RunningServer, job: int) -> None:
    ran = exec_in_job(server, job, "sh", "-c", "cat; echo oops >&2; exit 7", stdin=b"one\ntwo")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (7, "one\ntwo", "oops\n")
    assert exec_in_job(server, job, "sh", "-c", "kill -9 $$").exit_code == 137
    assert exec_in_job(server, job, "no-such-command").exit_code == 127


def test_words_reach_the_command_as_they_are(server: RunningServer, job: int) -> None:
    words = ["a b", "$(id)", "'", '"', "", "\n", "ä", "--", "-e"]
    ran = exec_in_job(server, job, "printf", "%s|", *words)
    assert ran.stdout == "".join(f"{word}|" for word in words)


def test_nothing_of_the_server_is_at_hand(server: RunningServer, job: int) -> None:
    ran = exec_in_job(server, job, "sh", "-c", "ls /proc/self/fd; env")
    assert "HELIOSTAT_HOME" in ran.stdout
    assert "PYTEST" not in ran.stdout
    descriptors = [int(line) for line in ran.stdout.splitlines() if line.isdecimal()]
    assert len(descriptors) <= 5, ran.stdout  # three, the script, and the folder that is listed


def test_the_command_line_and_the_client_pass_everything_on(server: RunningServer, job: int) -> None:
    ran = helio(server, "exec", str(job), "--", "sh", "-c", "cat; echo oops >&2; exit 3", stdin=b"\x00\xff")
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, b"\x00\xff", b"oops\n")
    as_json = helio(server, "exec", "--json", str(job), "echo", "hello")
    assert json.loads(as_json.stdout) == {"exit_code": 0, "stdout": "hello\n", "stderr": ""}
    large = os.urandom(3_000_000)
    done = Client(home=server.home).jobs.exec(job, ["cat"], stdin=large)
    assert (done.exit_code, done.stdout == large) == (0, True)


def test_what_it_prints_comes_as_it_does_and_it_ends_when_nobody_listens(
    server: RunningServer, job: int, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    script = f"echo $$ >{pid}; echo first; sleep 600"
    told = iter(Client(home=server.home).jobs.start_exec(job, ["sh", "-c", script]))
    assert next(told).data == b"first\n"
    number = int(pid.read_text())
    os.kill(number, 0)
    told.close()  # type: ignore[attr-defined]
    wait_for(lambda: not Path(f"/proc/{number}").exists(), "it has ended")


def test_it_ends_with_its_job(server: RunningServer) -> None:
    job = start_sleeping_job(server)
    line = "echo first; exec 2>/dev/null; trap : TERM; sleep 600 & wait; sleep 600"  # a shell tells of kills
    told = iter(Client(home=server.home).jobs.start_exec(job, ["sh", "-c", line]))
    assert next(told).data == b"first\n"
    server.ask("POST", f"/jobs/{job}/cancel", {"force": True})
    assert server.finished(job)["state"] == "cancelled"
    assert list(told) == []


def test_a_job_that_does_not_run_cannot_be_entered(server: RunningServer) -> None:
    job = server.run(command=["true"])["id"]
    answer = server.ask("POST", f"/jobs/{job}/exec", raw=b'{"command": ["true"]}\n')
    assert (answer.status, "completed" in answer.error["message"]) == (409, True)
    ran = helio(server, "exec", str(job), "true")
    assert (ran.returncode, b"completed" in ran.stderr) == (6, True)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{\n", 400),
        (b"[]\n", 400),
        (b'{"command": "true"}\n', 400),
        (b'{"command": [1]}\n', 400),
        (b'{"command": ["true"], "user": "root"}\n', 400),
        (b'{"command": []}\n', 422),
        (b'{"command": [" "]}\n', 422),
        (b'{"command": ["a\\u0000b"]}\n', 422),
        (b'{"command": ["a\\ud800b"]}\n', 422),
        (b"[" * 100_000 + b"\n", 400),
        (json.dumps({"command": ["x" * 200_000]}).encode() + b"\n", 422),
    ],
)
def test_what_makes_no_sense_is_refused(server: RunningServer, job: int, body: bytes, status: int) -> None:
    answer = server.ask("POST", f"/jobs/{job}/exec", raw=body)
    assert (answer.status, bool(answer.error["message"])) == (status, True)


@needs_root
def test_only_the_owner_enters_and_runs_as_themselves(server: RunningServer, two_unix_users: list[Person]) -> None:
    ann, bob = two_unix_users
    job = start_sleeping_job(server, ann.uid, env={"LD_PRELOAD": "/nonexistent.so"})
    try:
        ran = exec_in_job(
            server, job, "sh", "-c", "id -u; id -G; cat /proc/self/status | grep CapEff", uid=ann.uid
        )
        uid, groups, capabilities = ran.stdout.splitlines()
        assert (uid, capabilities.split()[1]) == (str(ann.uid), "0" * 16)
        assert sorted(map(int, groups.split())) == sorted(os.getgrouplist(ann.name, ann.gid))
        assert "object '/nonexistent.so' from LD_PRELOAD cannot be preloaded" in ran.stderr
        assert "setpriv" not in ran.stderr
        for uid_of in (bob.uid, None):  # nor the admin
            answer = server.ask("POST", f"/jobs/{job}/exec", raw=b'{"command": ["true"]}\n', uid=uid_of)
            assert answer.status == 403
    finally:
        server.ask("POST", f"/jobs/{job}/cancel", uid=ann.uid)


def test_one_person_runs_so_many_at_once_and_no_more(server: RunningServer, job: int) -> None:
    client = Client(home=server.home)
    many = [iter(client.jobs.start_exec(job, ["sh", "-c", "echo first; sleep 600"])) for _ in range(16)]
    assert {next(one).data for one in many} == {b"first\n"}
    answer = server.ask("POST", f"/jobs/{job}/exec", raw=b'{"command": ["true"]}\n')
    assert (answer.status, "16 commands" in answer.error["message"]) == (409, True)
    for one in many:
        one.close()  # type: ignore[attr-defined]
    wait_for(
        lambda: server.ask("POST", f"/jobs/{job}/exec", raw=b'{"command": ["true"]}\n').status == 200, "room again"
    )


def at(server: RunningServer, *words: str) -> TerminalProcess:
    return TerminalProcess(list(words), {**os.environ, "HELIOSTAT_HOME": str(server.home)})


def test_a_shell_in_a_job_is_on_a_terminal_of_the_size_of_mine(server: RunningServer, job: int) -> None:
    me = at(server, "ssh", str(job))
    me.resize(30, 90)  # before or after it has looked: both must do
    me.type("echo mark-$((1+1)); tty; echo $TOKEN-$HELIOSTAT_JOB_ID-$TERM\n")
    me.wait_for_output("mark-2")
    assert "/dev/pts/" in me.wait_for_output(f"sword fish-{job}-xterm")
    me.resize(31, 91)
    me.type("while [ \"$(stty size)\" != '31 91' ]; do sleep 0.05; done; echo now-$((1+1))\n")
    me.wait_for_output("now-2")
    me.type("exit 7\n")
    assert me.wait_for_exit() == 7


def test_keys_that_send_signals_send_them_inside(server: RunningServer, job: int) -> None:
    line = "trap 'echo interrupted-$((1+1)); exit 3' INT; echo ready; while :; do sleep 0.1; done"
    me = at(server, "ssh", str(job), "sh", "-c", line)
    me.wait_for_output("ready")
    me.type("\x03")
    me.wait_for_output("interrupted-2")
    assert me.wait_for_exit() == 3


def test_what_was_begun_on_a_terminal_ends_when_its_owner_goes(server: RunningServer, job: int) -> None:
    me = at(server, "ssh", str(job), "sh", "-c", "echo of-$$-; sleep 61; echo")
    me.wait_for_output("of-")
    pid = int(me.wait_for_output("-"))
    me.kill()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "it to end")


def test_without_a_terminal_there_is_no_shell(server: RunningServer, job: int) -> None:
    ran = helio(server, "ssh", str(job))
    assert (ran.returncode, b"helio exec" in ran.stderr) == (2, True), ran.stderr


@pytest.mark.parametrize(
    "terminal",
    [
        {"name": "xterm", "rows": 24},
        {"name": "a b", "rows": 24, "columns": 80},
        {"name": "../x", "rows": 24, "columns": 80},
        {"name": "xterm", "rows": 0, "columns": 80},
        {"name": "xterm", "rows": 70000, "columns": 80},
        {"name": "xterm", "rows": True, "columns": 80},
        "xterm",
        [],
    ],
)
def test_a_terminal_that_is_none_is_refused(server: RunningServer, job: int, terminal: object) -> None:
    body = json.dumps({"command": [], "terminal": terminal}).encode() + b"\n"
    answer = server.ask("POST", f"/jobs/{job}/exec", raw=body)
    assert (answer.status, "rows" in answer.json["error"]["hint"]) == (400, True), answer.json
