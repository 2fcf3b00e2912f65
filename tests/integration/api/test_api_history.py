"""The export of past jobs over HTTP: for admins, in lines, and nothing of what jobs were given."""

import json

import pytest

from integration.running_server import RunningServer
from integration.unix_users import Person, needs_root

SECRET = "hunter2"


def lines(server: RunningServer, query: str = "") -> list[dict[str, object]]:
    answer = server.ask("GET", f"/history{query}")
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.body.splitlines()]


def test_finished_jobs_are_told_without_their_names_commands_and_variables(server: RunningServer) -> None:
    done = server.run(command=["echo", SECRET], name=SECRET, env={"KEY": SECRET}, gpus=1)
    *jobs, ending = lines(server)
    assert ending == {"jobs": len(jobs)}
    mine = next(job for job in jobs if job["id"] == done["id"])
    assert (mine["state"], mine["gpus"], mine["attempts"]) == ("completed", 1, 1)
    assert SECRET not in json.dumps(jobs)


def test_a_period_that_lies_elsewhere_gives_nothing(server: RunningServer) -> None:
    server.run(command="true")
    assert lines(server, "?from=2001-01-01&to=2001-02-01T00:00:00Z") == [{"jobs": 0}]


def test_pseudonyms_hide_who_it_was(server: RunningServer) -> None:
    done = server.run(command="true")
    jobs = lines(server, "?anonymous=true")[:-1]
    assert jobs
    assert all(str(job["user"]).startswith("user_") for job in jobs)
    assert done["user"] not in {job["user"] for job in jobs}


@pytest.mark.parametrize(
    "query", ["?from=soon", "?to=2026-13-01", "?from=2026-02-01&to=2026-01-01", "?anonymous=perhaps"]
)
def test_a_question_that_makes_no_sense_is_refused(server: RunningServer, query: str) -> None:
    answer = server.ask("GET", f"/history{query}")
    assert (answer.status, answer.error["code"]) == (422, "invalid")
    assert answer.error["hint"]


@needs_root
def test_only_admins_may_see_it(server: RunningServer, ann: Person) -> None:
    answer = server.ask("GET", "/history?anonymous=true", uid=ann.uid)
    assert (answer.status, answer.error["code"]) == (403, "forbidden")
