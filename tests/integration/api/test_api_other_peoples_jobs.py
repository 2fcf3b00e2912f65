"""Of somebody else's job one may know that it is there, and nothing more."""

from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer
from integration.unix_users import Person, needs_root

pytestmark = needs_root
SECRET = "hunter2"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer(
        'server.engine = "simulated"\nserver.simulated_nodes = "1x4xA100"\nqueue.max_jobs_per_user = 3000\n'
    )
    yield server
    server.remove()


@pytest.fixture
def her_job(server: RunningServer, ann: Person) -> int:
    body = {"name": f"{SECRET}-name", "env": {"KEY": SECRET}, "workdir": f"/{SECRET}", "held": True}
    return server.submit(ann.uid, command=["echo", SECRET], **body)


@pytest.fixture
def his_job(server: RunningServer, bob: Person) -> int:
    return server.submit(bob.uid, command="true", held=True)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs/{}"),
        ("GET", "/jobs/{}/why"),
        ("GET", "/jobs/{}/logs"),
        ("GET", "/jobs/{}/logs?stream=stderr&attempt=1"),
        ("GET", "/jobs/{}/logs/follow"),
        ("GET", "/events?job_id={}"),
        ("GET", "/events/stream?job_id={}&after=0"),
        ("POST", "/jobs/{}/cancel"),
        ("POST", "/jobs/{}/hold"),
        ("POST", "/jobs/{}/release"),
        ("POST", "/jobs/{}/requeue"),
    ],
)
def test_it_can_neither_be_looked_into_nor_touched(
    server: RunningServer, ann: Person, bob: Person, her_job: int, method: str, path: str
) -> None:
    before = server.show(her_job, ann.uid)
    answer = server.ask(method, path.format(her_job), uid=bob.uid)
    assert (answer.status, answer.error["code"]) == (403, "forbidden")
    assert answer.error["hint"]
    assert SECRET.encode() not in answer.body
    assert server.show(her_job, ann.uid) == before


def test_it_cannot_be_waited_for(server: RunningServer, bob: Person, her_job: int, his_job: int) -> None:
    body = {"job_ids": [his_job, her_job], "timeout_seconds": 0}
    answer = server.ask("POST", "/jobs/wait", body, uid=bob.uid)
    assert answer.status == 403
    assert SECRET.encode() not in answer.body


def test_cancelling_mine_together_with_somebody_elses_cancels_neither(
    server: RunningServer, ann: Person, bob: Person, her_job: int, his_job: int
) -> None:
    for ids in ([his_job, her_job], [her_job, his_job], [his_job, her_job, his_job]):
        assert server.ask("POST", "/jobs/cancel", {"job_ids": ids}, uid=bob.uid).status == 403
    assert server.show(her_job, ann.uid)["state"] == "held"
    assert server.show(his_job, bob.uid)["state"] == "held"


def test_somebody_elses_array_cannot_be_cancelled(server: RunningServer, ann: Person, bob: Person) -> None:
    body = {"command": "true", "array": "0-3", "held": True}
    made = server.ask("POST", "/jobs", body, uid=ann.uid).json
    assert server.ask("POST", "/jobs/cancel", {"array_id": made["array_id"]}, uid=bob.uid).status == 403
    assert {server.show(job_id, ann.uid)["state"] for job_id in made["job_ids"]} == {"held"}


def test_the_list_shows_only_what_explains_the_queue(server: RunningServer, bob: Person, her_job: int) -> None:
    answer = server.ask("GET", "/jobs?limit=1000", uid=bob.uid)
    hers = next(job for job in answer.json["items"] if job["id"] == her_job)
    assert (hers["name"], hers["exit_code"], hers["reason"]) == (None, None, None)
    assert SECRET.encode() not in answer.body


def test_the_names_of_other_peoples_jobs_cannot_be_guessed_by_searching(
    server: RunningServer, ann: Person, bob: Person, her_job: int
) -> None:
    for query in ("", "&limit=1", "&project=default", "&user=me"):
        answer = server.ask("GET", f"/jobs?name={SECRET}{query}", uid=bob.uid)
        assert (answer.json["items"], answer.json["next_cursor"]) == ([], None)
    answer = server.ask("GET", f"/jobs?name={SECRET}&user={ann.name}", uid=bob.uid)
    assert answer.status == 422
    assert answer.error["fields"] == {"name": "not yours"}
    assert server.ask("GET", f"/jobs?name={SECRET}", uid=ann.uid).json["items"]
    assert server.ask("GET", f"/jobs?name={SECRET}&user={ann.name}").json["items"]


def test_the_event_log_tells_only_of_ones_own_jobs(
    server: RunningServer, bob: Person, her_job: int, his_job: int
) -> None:
    events = server.ask("GET", "/events?limit=1000", uid=bob.uid).json["items"]
    jobs = {event["job_id"] for event in events}
    assert his_job in jobs
    assert her_job not in jobs


def test_the_same_idempotency_key_of_two_people_is_two_keys(
    server: RunningServer, ann: Person, bob: Person
) -> None:
    key = {"Idempotency-Key": "'; DROP TABLE jobs; -- $(id) \xe4"}
    body = {"command": ["echo", SECRET], "held": True}
    hers = server.ask("POST", "/jobs", body, uid=ann.uid, headers=key).json
    his = server.ask("POST", "/jobs", body, uid=bob.uid, headers=key).json
    assert (hers["user"], his["user"]) == (ann.name, bob.name)
    assert hers["id"] != his["id"]
    again = server.ask("POST", "/jobs", body, uid=ann.uid, headers=key).json
    assert again["id"] == hers["id"]


def test_a_key_used_again_for_something_else_is_a_conflict(server: RunningServer, ann: Person) -> None:
    key = {"Idempotency-Key": "once"}
    server.ask("POST", "/jobs", {"command": "true", "held": True}, uid=ann.uid, headers=key)
    before = server.jobs()
    answer = server.ask("POST", "/jobs", {"command": "false", "held": True}, uid=ann.uid, headers=key)
    assert (answer.status, answer.error["code"]) == (409, "conflict")
    assert server.jobs() == before


def test_what_filled_the_queue_is_answered_again_when_it_is_sent_again(server: RunningServer, bob: Person) -> None:
    key = {"Idempotency-Key": "the last ones"}
    body = {"jobs": [{"command": "true", "held": True, "array": "0-999"}] * 2}
    first = server.ask("POST", "/jobs/bulk", body, uid=bob.uid, headers=key)
    assert first.status == 201
    again = server.ask("POST", "/jobs/bulk", body, uid=bob.uid, headers=key)
    assert again.json["job_ids"] == first.json["job_ids"]
    refused = server.ask("POST", "/jobs/bulk", body, uid=bob.uid)
    assert (refused.status, refused.error["code"]) == (409, "queue_full")
    assert (
        server.ask("POST", "/jobs/cancel", {"job_ids": first.json["job_ids"]}, uid=bob.uid).json["count"] == 2000
    )
    waited = server.ask("POST", "/jobs/wait", {"job_ids": first.json["job_ids"]}, uid=bob.uid)
    assert waited.json["unfinished"] == []


def test_a_project_one_is_not_in_is_refused_in_the_same_words_whether_it_exists_or_not(
    server: RunningServer, ann: Person
) -> None:
    server.ask("POST", "/projects", {"name": "hidden", "department": "default"})
    server.ask("GET", "/whoami", uid=ann.uid)
    known, unknown = (
        server.ask("POST", "/jobs", {"command": "true", "project": name}, uid=ann.uid)
        for name in ("hidden", "hiddem")
    )
    assert known.status == unknown.status == 422
    assert known.body.replace(b"hidden", b"hiddem") == unknown.body
    known, unknown = (server.ask("GET", f"/projects/{name}", uid=ann.uid) for name in ("hidden", "hiddem"))
    assert known.status == unknown.status == 404
    assert known.body.replace(b"hidden", b"hiddem") == unknown.body


def test_a_manager_sees_and_ends_the_jobs_of_their_project_and_of_no_other(
    server: RunningServer, ann: Person, bob: Person, her_job: int
) -> None:
    server.ask("POST", "/projects", {"name": "lab", "department": "default"})
    server.ask("PUT", f"/projects/lab/members/{ann.name}", {})
    server.ask("PUT", f"/projects/lab/members/{bob.name}", {"role": "manager"})
    in_lab = server.submit(ann.uid, command="true", project="lab", held=True)
    assert server.ask("GET", f"/jobs/{in_lab}", uid=bob.uid).status == 200
    assert server.ask("GET", f"/jobs/{her_job}", uid=bob.uid).status == 403
    assert server.ask("POST", f"/jobs/{in_lab}/cancel", uid=bob.uid).json["state"] == "cancelled"


def test_also_who_may_look_into_it_learns_only_the_names_of_variables(
    server: RunningServer, ann: Person, her_job: int
) -> None:
    assert server.show(her_job, ann.uid)["spec"]["env"] == {"KEY": SECRET}
    seen_by_admin = server.show(her_job)
    assert seen_by_admin["spec"]["env"] == {"KEY": "(hidden)"}
    assert "env" not in seen_by_admin["request"]
