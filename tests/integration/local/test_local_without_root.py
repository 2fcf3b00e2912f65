"""A server that somebody runs for themselves: their own jobs work, others are told why theirs cannot."""

import os
from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer, acting_as
from integration.unix_users import Person, needs_root, python_for

pytestmark = needs_root


@pytest.fixture(scope="module")
def server(two_unix_users: list[Person]) -> Iterator[RunningServer]:
    ann = two_unix_users[0]
    python, environment = python_for(ann)
    server = RunningServer(
        'server.simulate_gpus = "1xT4"\nserver.node_name = "hers"\n', environment, ann.name, python
    )
    yield server
    server.remove()


def test_her_own_jobs_run_and_she_rules(server: RunningServer, ann: Person) -> None:
    who = server.ask("GET", "/whoami", uid=ann.uid).json["user"]
    assert (who["name"], who["role"]) == (ann.name, "admin")
    job = server.run(ann.uid, command="id -u; echo $CUDA_VISIBLE_DEVICES; exit 4", gpus=1)
    assert (job["state"], job["exit_code"]) == ("failed", 4)
    assert server.output(job["id"], ann.uid) == f"{ann.uid}\nSIM-T4-0\n"


def test_it_runs_as_her_and_not_as_root(server: RunningServer, ann: Person) -> None:
    assert os.stat(f"/proc/{server.pid}").st_uid == ann.uid


def test_others_cannot_even_reach_the_socket(server: RunningServer, bob: Person) -> None:
    with pytest.raises(PermissionError):
        server.ask("GET", "/whoami", uid=bob.uid)
    with acting_as(bob.uid), pytest.raises(PermissionError):
        os.listdir(server.home)


def test_whoever_else_gets_through_is_told_to_ask_for_root(server: RunningServer) -> None:
    answer = server.ask("POST", "/jobs", {"command": "true"})  # as root, whom no socket's mode stops
    assert answer.status == 403
    assert "root" in answer.error["hint"]


def test_a_job_of_somebody_else_fails_with_the_reason_and_never_runs_as_her(
    server: RunningServer, ann: Person, bob: Person
) -> None:
    made = server.ask(
        "POST", "/users", {"name": bob.name, "unix_user": bob.name, "password": "a long enough word"}, uid=ann.uid
    )
    assert made.status == 201
    login = server.ask("POST", "/login", {"name": bob.name, "password": "a long enough word"}, tcp=True).json
    proof = {"Authorization": f"Bearer {login['token']}"}
    answer = server.ask("POST", "/jobs", {"command": "touch /tmp/no"}, headers=proof, tcp=True)
    if answer.status == 201:
        job = server.finished(answer.json["id"], ann.uid)
        assert (job["state"], job["exit_code"]) == ("failed", None)
        assert "root" in job["reason"]
    else:
        assert answer.status == 403
        assert "root" in answer.error["hint"]
