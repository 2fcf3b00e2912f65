"""Schedules over HTTP: rights, refusals, and a real job that runs; and the same as Chronos' own clients speak."""

import base64
import csv
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from heliostat.client import Client
from integration.running_server import Answer, RunningServer, wait_for
from integration.unix_users import Person

JOB = {"command": 'echo "$HELIOSTAT_SCHEDULE at $HELIOSTAT_DUE_AT"', "cpus": 1, "memory": 64}
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer(
        'server.simulate_gpus = "4xA100"\nserver.node_name = "here"\nqueue.min_schedule_seconds = 1\n'
    )
    yield server
    server.remove()


def create(server: RunningServer, name: str, uid: int | None = None, **fields: Any) -> Answer:
    return server.ask("POST", "/schedules", {"name": name, "job": JOB, **fields}, uid=uid)


def firings(server: RunningServer, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.ask("GET", f"/schedules/{name}/firings").json["items"]
    return found


def chronos(
    server: RunningServer, method: str, path: str, body: object = None, raw: bytes | None = None, **headers: str
) -> Answer:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    sent = raw if body is None else json.dumps(body)
    given = {
        "Content-Type": "application/json",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    try:
        connection.request(method, path, sent, given)
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def basic(name: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


@pytest.fixture(scope="module")
def proof(server: RunningServer) -> str:
    token = server.ask("POST", "/tokens", {"name": "chronos"}).json["token"]
    return basic("root", token)


def test_a_schedule_fires_a_real_job_that_knows_its_due_time(server: RunningServer) -> None:
    made = create(server, "twice", schedule="R2//PT1S", overlap="allow")
    assert made.status == 201
    assert len(made.json["next_times"]) == 2
    wait_for(lambda: server.ask("GET", "/schedules/twice").json["succeeded"] == 2, "both to succeed")
    found = firings(server, "twice")
    outputs = {server.output(one["job_id"]) for one in found}
    assert outputs == {f"twice at {one['due_at']}\n" for one in found}
    assert server.ask("GET", "/schedules/twice").json["state"] == "finished"
    created_by = server.show(found[0]["job_id"])["schedule"]
    assert (created_by["name"], created_by["due_at"]) == ("twice", found[0]["due_at"])
    assert server.run(**JOB)["schedule"] is None


def test_failures_are_counted_and_reasons_told(server: RunningServer) -> None:
    create(server, "failing", schedule="R1//PT1S", job={"command": "exit 3", "cpus": 1, "memory": 64})
    wait_for(lambda: server.ask("GET", "/schedules/failing").json["failed"] == 1, "it to fail")
    assert [(one["state"], one["reason"]) for one in firings(server, "failing")] == [("failed", "exit code 3")]


def test_it_is_changed_paused_resumed_run_and_removed(server: RunningServer) -> None:
    create(server, "all-verbs", schedule="0 2 * * *", time_zone="Europe/Berlin", paused=True)
    changed = server.ask("PATCH", "/schedules/all-verbs", {"retries": 2, "schedule": "@hourly"}).json
    assert (changed["retries"], changed["schedule"], changed["state"]) == (2, "@hourly", "paused")
    assert server.ask("POST", "/schedules/all-verbs/resume").json["next_at"]
    assert server.ask("POST", "/schedules/all-verbs/pause").json["next_at"] is None
    headers = {"Idempotency-Key": "once"}
    first = server.ask("POST", "/schedules/all-verbs/run", headers=headers)
    assert first.status == 201
    assert server.finished(first.json["job_id"])["state"] == "completed"
    assert server.ask("DELETE", "/schedules/all-verbs").status == 204
    assert server.ask("GET", "/schedules/all-verbs").status == 404


def test_its_times_and_its_parents_are_changed_with_the_client(server: RunningServer) -> None:
    with Client(home=server.home) as client:
        for name in ("first", "second"):
            client.schedules.create(name, "0 2 * * *", JOB)
        assert client.schedules.change("second", schedule="@hourly")["schedule"] == "@hourly"
        after = client.schedules.change("second", schedule=None, parents=["first"])
        assert (after["schedule"], len(after["parents"])) == (None, 1)
        for name in ("second", "first"):
            client.schedules.remove(name)


def test_the_next_times_are_told_before_anything_is_stored(server: RunningServer) -> None:
    body = {"schedule": "R3/2030-01-31T08:00:00/P1M", "time_zone": "Europe/Berlin"}
    preview = server.ask("POST", "/schedules/preview", body).json
    assert preview["times"] == ["2030-01-31T07:00:00Z", "2030-02-28T07:00:00Z", "2030-03-31T06:00:00Z"]
    assert preview["time_zone"] == "Europe/Berlin"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"schedule": "R0//PT1H"}, "schedule"),
        ({"schedule": "61 * * * *"}, "schedule"),
        ({"schedule": "@daily", "time_zone": "Mars/Olympus"}, "time_zone"),
        ({"schedule": "@daily", "overlap": "maybe"}, "overlap"),
        ({"schedule": "@daily", "epsilon": -1}, "epsilon"),
        ({"schedule": "@daily", "job": {"command": ""}}, "job.command"),
        ({"schedule": "@daily", "parents": ["nobody"]}, "schedule"),
        ({"parents": ["nobody"]}, "parents"),
        ({"schedule": "@daily", "bogus": 1}, "bogus"),
        ({}, "schedule"),
    ],
)
def test_what_is_wrong_is_refused_with_its_field(
    server: RunningServer, fields: dict[str, Any], field: str
) -> None:
    answer = create(server, "wrong", **fields)
    assert answer.status == 422
    assert any(name.startswith(field) for name in answer.error["fields"]), answer.error
    assert server.ask("GET", "/schedules/wrong").status == 404


def test_others_see_nothing_of_it_and_admins_no_values(server: RunningServer, ann: Person, bob: Person) -> None:
    job = {**JOB, "env": {"TOKEN": "secret"}}
    number = create(server, "mine", ann.uid, schedule="@daily", job=job).json["id"]
    for method, path in (
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/run"),
        ("GET", "/firings"),
    ):
        body = {"retries": 1} if method == "PATCH" else None
        assert server.ask(method, f"/schedules/{number}{path}", body, uid=bob.uid).status == 404, (method, path)
    assert server.ask("GET", "/schedules?all=true", uid=bob.uid).json["items"] == []
    seen = server.ask("GET", f"/schedules/{number}")
    assert seen.json["job"]["env"] == {"TOKEN": "(hidden)"}
    assert b"secret" not in seen.body
    assert server.ask("GET", f"/schedules/{number}", uid=ann.uid).json["job"]["env"] == {"TOKEN": "secret"}
    assert server.ask("PATCH", f"/schedules/{number}", {"retries": 1}).status == 403
    assert server.ask("POST", f"/schedules/{number}/run").status == 403
    assert server.ask("POST", f"/schedules/{number}/pause").status == 200


def test_a_schedule_runs_as_its_owner(server: RunningServer, ann: Person) -> None:
    job = {"command": "id -un", "cpus": 1, "memory": 64}
    create(server, "whoami", ann.uid, schedule="R1//PT1S", job=job)
    wait_for(
        lambda: server.ask("GET", "/schedules/whoami", uid=ann.uid).json["succeeded"] == 1, "it to run", lambda: ""
    )
    found = server.ask("GET", "/schedules/whoami/firings", uid=ann.uid).json["items"]
    assert server.output(found[0]["job_id"], ann.uid) == f"{ann.name}\n"


@pytest.mark.parametrize("prefix", ["/v1", ""])
def test_what_was_written_for_chronos_works_as_it_is(server: RunningServer, proof: str, prefix: str) -> None:
    name, base = f"chronos{prefix.replace('/', '-')}", f"{prefix}/scheduler"

    def ask(method: str, path: str, body: object = None) -> Answer:
        return chronos(server, method, base + path, body, Authorization=proof)

    job = {
        "schedule": "R/2030-10-01T05:52:00.000Z/PT2M",
        "name": name,
        "epsilon": "PT15M",
        "command": "echo FOO",
        "owner": "bob@example.org",
        "async": False,
        "cpus": "0.5",
        "mem": "64",
    }
    assert ask("POST", "/iso8601", job).status == 204
    child = {"name": f"{name}-child", "command": "echo BAR", "parents": [name], "mem": 64, "retries": 0}
    assert ask("POST", "/dependency", child).status == 204
    assert ask("PUT", "/iso8601", {**job, "retries": 5}).status == 204
    listed = {one["name"]: one for one in ask("GET", "/jobs").json}
    assert (listed[name]["retries"], listed[name]["owner"]) == (5, "bob@example.org")
    assert listed[f"{name}-child"]["parents"] == [name]
    assert "schedule" not in listed[f"{name}-child"]
    assert [one["name"] for one in ask("GET", f"/jobs/search?name={name}-ch").json] == [f"{name}-child"]
    assert [one["name"] for one in ask("GET", f"/jobs/search?any={name}-ch").json] == [f"{name}-child"]
    assert ask("PUT", f"/job/{name}").status == 204
    wait_for(lambda: _count(ask, f"{name}-child") == 1, "the child to succeed", lambda: server.log)
    shown = next(one for one in ask("GET", "/jobs").json if one["name"] == name)
    assert (shown["successCount"], shown["errorCount"], shown["lastError"]) == (1, 0, "")
    assert shown["lastSuccess"].endswith("Z")
    stat = ask("GET", f"/job/stat/{name}").json
    assert stat["histogram"]["count"] == 1
    assert [one["status"] for one in stat["taskStatHistory"]] == ["SUCCESS"]
    assert name in [one["jobNameLabel"] for one in ask("GET", "/stats/median").json]
    assert f'"{name}" -> "{name}-child";' in ask("GET", "/graph/dot").body.decode()
    lines = ask("GET", "/graph/csv").body.decode().splitlines()
    assert {f"node,{name},success,idle", f"link,{name},{name}-child"} <= set(lines)
    assert ask("DELETE", f"/task/kill/{name}").status == 204
    assert ask("DELETE", f"/job/{name}").status == 400, "it is a parent"
    assert [ask("DELETE", f"/job/{one}").status for one in (f"{name}-child", name)] == [204, 204]
    assert ask("GET", f"/job/stat/{name}").json["message"].startswith(f"Job '{name}' not found")
    leader = chronos(server, "GET", f"{prefix}/leader", Authorization=proof)
    assert leader.json == {"leader": server.url.removeprefix("http://")}


def _count(ask: Any, name: str) -> int:
    found = [one["successCount"] for one in ask("GET", "/jobs").json if one["name"] == name]
    count: int = found[0]
    return count


def test_one_that_is_marked_successful_is_counted_and_lets_its_children_follow(
    server: RunningServer, proof: str
) -> None:
    def ask(method: str, path: str, body: object = None) -> Answer:
        return chronos(server, method, f"/v1/scheduler{path}", body, Authorization=proof)

    parent = {"name": "by-hand", "command": "false", "schedule": "R/2099-01-01T00:00:00Z/P1D"}
    assert ask("POST", "/iso8601", parent).status == 204
    child = {"name": "after-hand", "command": "true", "parents": ["by-hand"], "cpus": 1, "mem": 64}
    assert ask("POST", "/dependency", child).status == 204
    marked = ask("PUT", "/job/success/by-hand")
    assert (marked.status, marked.body) == (200, b"marked job by-hand as successful: true")
    assert ask("GET", "/job/by-hand").json["successCount"] == 1
    wait_for(lambda: ask("GET", "/job/after-hand").json["successCount"] == 1, "the child to run")
    assert len(firings(server, "after-hand")) == 1
    assert firings(server, "by-hand") == [], "nothing of it has run"
    assert ask("PUT", "/job/success/nobody").status == 400
    for name in ("after-hand", "by-hand"):
        assert ask("DELETE", f"/job/{name}").status == 204


def test_chronos_asks_for_a_login_and_takes_name_and_password_or_token(server: RunningServer, proof: str) -> None:
    nobody = chronos(server, "GET", "/v1/scheduler/jobs")
    assert nobody.status == 401
    assert nobody.headers["www-authenticate"].startswith("Basic")
    server.ask("PUT", "/users/root/password", {"password": PASSWORD})
    with_password = chronos(server, "GET", "/scheduler/jobs", Authorization=basic("root", PASSWORD))
    assert with_password.status == 200
    for wrong in (basic("root", "helio_" + "x" * 43), basic("root", "wrong"), "Basic ???"):
        assert chronos(server, "GET", "/v1/scheduler/jobs", Authorization=wrong).status == 401
    token = base64.b64decode(proof.split()[1]).decode().partition(":")[2]
    assert chronos(server, "GET", "/v1/scheduler/jobs", Authorization=basic("ann", token)).status == 401


def test_a_browser_that_remembers_a_login_does_nothing_for_other_sites(server: RunningServer, proof: str) -> None:
    job = {"schedule": "R//PT1H", "name": "evil", "command": "true"}
    for site in ("cross-site", "same-site"):
        answer = chronos(server, "POST", "/v1/scheduler/iso8601", job, Authorization=proof, Sec_Fetch_Site=site)
        assert answer.status == 403
    assert server.ask("GET", "/schedules/evil").status == 404


@pytest.mark.parametrize("body", [[], "x", {"name": "x"}, {"name": "x", "command": "y", "schedule": "soon"}])
def test_what_chronos_would_refuse_is_400_with_a_message(server: RunningServer, proof: str, body: object) -> None:
    answer = chronos(server, "POST", "/v1/scheduler/iso8601", body, Authorization=proof)
    assert answer.status == 400
    assert answer.json["message"]
    assert answer.json["status"] == "Bad Request"


@pytest.mark.parametrize(
    ("method", "path", "raw", "status"),
    [
        ("GET", "/v1/scheduler/nothing", None, 404),
        ("PATCH", "/scheduler/jobs", None, 405),
        ("POST", "/v1/scheduler/iso8601", b'{"container": ' + b"[" * 5000 + b"]" * 5000 + b"}", 400),
        ("POST", "/scheduler/iso8601", b"\xff\xfe", 400),
        ("POST", "/scheduler/iso8601", b" " * 40_000_000, 413),
    ],
)
def test_programs_of_chronos_are_told_in_json_what_is_wrong_before_any_route(
    server: RunningServer, proof: str, method: str, path: str, raw: bytes | None, status: int
) -> None:
    answer = chronos(server, method, path, raw=raw, Authorization=proof)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json"), answer.body[:300]
    assert answer.json.keys() == {"message", "status"}


def test_names_with_commas_keep_the_lines_of_a_graph_readable(server: RunningServer, proof: str) -> None:
    name = 'a,"b'
    create(server, name, schedule="R//P1D", paused=True)
    lines = chronos(server, "GET", "/scheduler/graph/csv", Authorization=proof).body.decode().splitlines()
    assert [name, "fresh", "idle"] in [row[1:] for row in csv.reader(lines)]
    found = next(one for one in server.ask("GET", "/schedules").json["items"] if one["name"] == name)
    assert server.ask("DELETE", f"/schedules/{found['id']}").status == 204
