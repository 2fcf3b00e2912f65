import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heliostat.cli.doctor import print_finding
from heliostat.cli.server_process import running_server_pid, stop_server
from heliostat.config import Home
from unit.client.stand_in_server import answer

STATUS = {"version": "0.1.0", "pid": 1, "engine": "local", "url": "http://127.0.0.1:1", "home": "/x", "jobs": {}}


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir(exist_ok=True)
    return Home(tmp_path / "home")


@pytest.fixture
def holder(home):
    """A process that holds the lock as the server does."""
    code = (
        "import fcntl, sys, signal; f = open(sys.argv[1], 'a'); fcntl.flock(f, 2); print(flush=1); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(home.lock_file)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_status_of_nothing_is_exit_code_3(helio, tmp_path):
    ran = helio("status", "--json")
    assert ran.code == 3
    assert json.loads(ran.out) == {
        "running": False,
        "address": str(tmp_path / "home/heliostat.sock"),
        "home": str(tmp_path / "home"),
    }


def test_status_of_a_running_server(helio, serve):
    serve(answer(STATUS))
    assert json.loads(helio("status", "--json").out) == {"running": True, **STATUS}


def test_an_engine_that_does_not_answer_is_a_note_of_every_command(helio, serve):
    notice = "Slurm has not answered since 2026-01-01 00:00:00 UTC."
    outage = {"since": "2026-01-01T00:00:00Z", "reason": "no route to host"}
    serve(answer({**STATUS, "engine": "slurm", "engine_outage": outage}, Heliostat_Notice=notice))
    ran = helio("status")
    assert ran.err == f"note: {notice}\n"
    assert "slurm, which has not answered since" in ran.out
    assert "no route to host" in ran.out


def test_up_of_a_running_server_says_so(helio, serve):
    serve(answer(STATUS))
    ran = helio("up", "--background")
    assert ran.code == 0
    assert "already running" in ran.out


UNKNOWN = {
    "job_id": 7,
    "attempt_id": "7.1",
    "unix_user": "ann",
    "started_at": "2026-11-18T20:00:00Z",
    "place": "process 4711",
}
PAUSED = {
    "paused": True,
    "paused_at": "2026-11-18T20:00:00Z",
    "reason": "it was restored from a backup",
    "after_restore": True,
    "unknown_jobs": [UNKNOWN],
}


def test_up_of_a_paused_server_lists_the_jobs_that_it_does_not_know_and_asks_on_a_terminal(
    helio, serve, monkeypatch
):
    paused = answer({**STATUS, "paused": {"at": "", "reason": PAUSED["reason"]}}, Connection="close")
    serve(paused, answer(PAUSED))
    ran = helio("up", "--background")
    assert "paused: it was restored from a backup" in ran.out
    assert "job 7 of ann, since 2026-11-18T20:00:00Z, process 4711" in ran.out
    assert "helio resume" in ran.out


def test_resume_sends_what_is_answered_on_a_terminal(helio, serve, monkeypatch):
    server = serve(answer(PAUSED), answer(None, 204))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "leave")
    assert helio("resume").code == 0
    assert server.requests[1].endswith(b'{"unknown_jobs":"leave"}')


def test_a_server_that_runs_cannot_be_started_paused(helio, serve):
    serve(answer(STATUS))
    ran = helio("up", "--paused")
    assert ran.code == 6
    assert "not paused" in ran.err


def test_down_of_nothing_says_so(helio):
    ran = helio("down")
    assert ran.code == 0
    assert "not running" in ran.out


def test_down_ends_the_process_that_holds_the_lock(home, holder):
    home.status_file.write_text(json.dumps({"pid": holder.pid}))
    assert stop_server(home) == holder.pid
    assert holder.wait(120) == -15


def test_a_process_that_only_has_the_number_of_an_old_server_is_left_alone(home):
    home.lock_file.touch()
    home.status_file.write_text(json.dumps({"pid": os.getpid()}))
    assert running_server_pid(home) is None
    assert stop_server(home) is None


def test_a_lock_without_a_status_file_is_no_server_to_stop(home, holder):
    assert stop_server(home) is None
    assert holder.poll() is None


def test_a_server_that_dies_at_once_shows_its_last_words(helio, home):
    home.config_file.write_text("nonsense = 1\n")
    ran = helio("up", "--background")
    assert ran.code == 2  # found before anything is started
    home.config_file.unlink()
    with open(home.lock_file, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # so that the server refuses to start
        ran = helio("up", "--background", "--port", "0")
    assert ran.code == 1
    assert "already running" in ran.err
    assert str(home.server_log) in ran.err


def test_the_doctor_works_without_a_server(helio, tmp_path):
    ran = helio("doctor", "--json")
    findings = json.loads(ran.out)["findings"]
    assert ran.code == 1
    assert (findings[0]["check"], findings[0]["level"]) == ("server", "problem")
    assert len(findings) > 1


def test_a_finding_cannot_change_the_terminal(capsys):
    print_finding({"level": "warning", "check": "node-exporter", "message": "500 \x1b[2Jgone\nok", "hint": None})
    assert "node-exporter: 500 \N{REPLACEMENT CHARACTER}[2Jgone ok\n" in capsys.readouterr().out


def test_the_doctor_of_a_user_tells_what_it_may(helio, serve):
    said = {"code": "forbidden", "message": "Only an admin may do this.", "hint": None}
    serve(answer(STATUS), answer({"error": said}, 403))
    ran = helio("doctor")
    assert ran.code == 0
    assert "sudo helio doctor" in ran.out


def test_login_keeps_a_lasting_token_and_logout_takes_it_back(helio, serve, tmp_path, monkeypatch):
    server = serve(
        answer({"token": "short", "id": 1, "expires_at": None}, Connection="close"),
        answer({"token": "lasting", "id": 2}, 201),
        answer(None, Connection="close"),
        answer({"user": {"name": "anna", "memberships": []}, "via": "token"}, Connection="close"),
        answer(None),
    )
    monkeypatch.setattr("sys.stdin", _Typed("secret\n"))
    ran = helio("login", f"unix:{tmp_path}/home/heliostat.sock", "--name", "anna", "--password-stdin")
    assert ran.code == 0, ran.err
    kept = json.loads((tmp_path / "config/heliostat/login.json").read_text())
    assert (kept["token"], kept["token_id"]) == ("lasting", 2)
    assert helio("logout").out == "Logged out.\n"
    assert server.requests[-1].startswith(b"DELETE /api/v1/tokens/2 ")
    assert not Path(tmp_path / "config/heliostat/login.json").exists()


class _Typed:
    def __init__(self, line: str) -> None:
        self._line = line

    def readline(self) -> str:
        return self._line

    def isatty(self) -> bool:
        return False
