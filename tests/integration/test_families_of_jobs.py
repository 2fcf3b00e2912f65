"""Jobs that wait for other jobs and for a time, on a real server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for

SMALL = {"cpus": 1, "memory": 64}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer('server.simulate_gpus = "2xA100"\nserver.node_name = "here"\n')
    yield server
    server.remove()


def bulk(server: RunningServer, *jobs: dict[str, Any]) -> list[int]:
    answer = server.ask("POST", "/jobs/bulk", {"jobs": [SMALL | job for job in jobs]})
    assert answer.status == 201, answer.body
    ids: list[int] = answer.json["job_ids"]
    return ids


def shown(server: RunningServer, job: int) -> dict[str, Any]:
    answer: dict[str, Any] = server.ask("GET", f"/jobs/{job}").json
    return answer


def helio(server: RunningServer, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from heliostat.cli.main import main; sys.exit(main())", *words]
    env = {**os.environ, "HELIOSTAT_HOME": str(server.home), "TZ": "UTC"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, input=stdin, timeout=60)


def test_a_chain_runs_in_order_and_each_begins_when_the_one_before_has_ended(
    server: RunningServer, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    line = f"echo %s >> {tmp_path}/order; sleep 0.1"
    last, first, middle = bulk(
        server,
        {"command": line % "last", "name": "last", "after": ["middle"]},
        {"command": line % "first", "name": "first"},
        {"command": line % "middle", "name": "middle", "after": "first"},
    )
    assert [server.finished(job)["state"] for job in (first, middle, last)] == ["completed"] * 3
    assert (tmp_path / "order").read_text().split() == ["first", "middle", "last"]
    told = shown(server, middle)
    assert told["parents"] == [{"job_id": first, "rule": "ok", "state": "completed"}]
    assert told["children"] == [{"job_id": last, "rule": "ok", "state": "completed"}]
    assert told["request"]["after"] == [first]
    assert shown(server, first)["ended_at"] <= told["started_at"]


def test_what_waits_says_for_whom_and_runs_by_its_rule(server: RunningServer) -> None:
    parent, ok, any_end, failed, grandchild = bulk(
        server,
        {"command": "while :; do sleep 0.05; done", "name": "parent", "time_limit": 3600},
        {"command": "true", "name": "ok", "after": "parent"},
        {"command": "true", "after_any": "parent"},
        {"command": "true", "after_failed": "parent"},
        {"command": "true", "after": "ok"},
    )
    wait_for(lambda: shown(server, parent)["state"] == "running", "the parent to run")
    why = server.ask("GET", f"/jobs/{ok}/why").json
    assert why["sentence"].startswith(f"waits for job {parent} (running, at most ")
    assert (why["blocked_by"], why["position"]) == ("parents", None)
    assert shown(server, ok)["parents_left"] == 1
    said = helio(server, "why", str(ok))
    assert f"waits for job {parent}" in said.stdout, said.stderr
    server.ask("POST", f"/jobs/{parent}/cancel?force=true")
    assert server.finished(ok)["state"] == "cancelled"
    assert shown(server, ok)["reason"] == f"job {parent}, on which it depends, was cancelled"
    assert server.finished(grandchild)["reason"] == f"job {ok}, on which it depends, was cancelled"
    assert server.finished(any_end)["state"] == server.finished(failed)["state"] == "completed"


def test_a_job_begins_when_its_time_has_come_though_nothing_else_happens(server: RunningServer) -> None:
    job = server.submit(command="true", begin="+2s", **SMALL)
    assert "waits for its begin time" in shown(server, job)["reason"]
    over = server.finished(job)
    assert over["state"] == "completed"
    assert datetime.fromisoformat(over["started_at"]) >= datetime.fromisoformat(over["begin_at"])


def test_what_cannot_be_is_refused_in_words(server: RunningServer) -> None:
    for body, status, words in (
        ({"after": 10**6}, 422, "There is no job 1000000 that your job can depend on."),
        ({"after": {"a": 1}}, 422, "after: name jobs by number"),
        ({"begin": "tomorrow"}, 422, "begin: 'tomorrow' is not a time"),
        ({"after": 1, "after_ok": 1}, 422, "two names of the same field"),
    ):
        answer = server.ask("POST", "/jobs", SMALL | {"command": "true"} | body)
        assert answer.status == status
        assert words in answer.error["message"]
    loop = [{"command": "true", "name": "a", "after": "b"}, {"command": "true", "name": "b", "after": "a"}]
    answer = server.ask("POST", "/jobs/bulk", {"jobs": loop})
    assert (answer.status, answer.error["code"]) == (422, "cycle")
    assert "a → b → a" in answer.error["message"]


def test_one_can_ask_when_a_job_would_start_after_another(server: RunningServer) -> None:
    parent = server.submit(command="sleep 60", time_limit=600, **SMALL)
    answer = server.ask("POST", "/when", {"after": parent, **SMALL}).json
    assert not answer["starts_now"]
    assert answer["forecast"]["limits_at"] > datetime.now(UTC).isoformat()
    begin = datetime.now(UTC) + timedelta(hours=5)
    answer = server.ask("POST", "/when", {"begin": begin.isoformat(), **SMALL}).json
    assert datetime.fromisoformat(answer["forecast"]["earliest_at"]) >= begin - timedelta(seconds=1)
    server.ask("POST", f"/jobs/{parent}/cancel")


def test_the_command_line_submits_shows_and_refuses(server: RunningServer) -> None:
    parent = server.submit(command="sleep 60", **SMALL)
    small = ("--cpus", "1", "--memory", "64M")
    said = helio(server, "run", "--after", f"{parent}", "--begin", "+1h", "--json", *small, "--", "true")
    assert said.returncode == 0, said.stderr
    child = max(job["id"] for job in server.ask("GET", "/jobs?unfinished=true").json["items"])
    facts = helio(server, "show", str(child)).stdout
    assert f"{parent} (running)" in facts or f"{parent} (starting)" in facts
    assert "not before" in facts
    assert f"{child} (pending)" in helio(server, "show", str(parent)).stdout
    refused = helio(server, "run", "--after-any", "999999", *small, "--", "true")
    assert refused.returncode != 0
    assert "There is no job 999999" in refused.stderr
    server.ask("POST", f"/jobs/{parent}/cancel?force=true")
    assert server.finished(child)["state"] == "cancelled"


def test_a_file_says_who_waits_for_whom(server: RunningServer) -> None:
    text = """
jobs:
  - {name: prep, command: "true", cpus: 1, memory: 64M, array: 0-2}
  - {name: train, command: "true", cpus: 1, memory: 64M, array: 0-2, after_each: prep}
  - {name: report, command: "true", cpus: 1, memory: 64M, after: [train], begin: 2026-01-01 08:00:00}
"""
    said = helio(server, "submit", "-", "--wait", "--json", stdin=text)
    assert said.returncode == 0, said.stderr
    assert '"parents_left": 0' in said.stdout
