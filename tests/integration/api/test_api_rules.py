"""Shares, quotas, node settings and reservations over HTTP: who may, and what is refused how."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root

pytestmark = needs_root
COURSE = {
    "name": "course",
    "nodes": ["a100-01"],
    "starts_at": "2099-12-03T09:00:00+01:00",
    "ends_at": "2099-12-03T17:00:00+01:00",
}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer('server.engine = "simulated"\nserver.simulated_nodes = "2x4xA100"\n')
    yield server
    server.remove()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/departments/default", {"share": 9}),
        ("PATCH", "/projects/default", {"share": 9}),
        ("PATCH", "/projects/default", {"data_class": 3}),
        ("PATCH", "/users/root", {"quota": {"queued_gpus": 0}}),
        ("PATCH", "/nodes/a100-01", {"data_class": 3}),
        ("POST", "/reservations", COURSE),
        ("DELETE", "/reservations/course", None),
        ("POST", "/announcements", {"text": "hello"}),
        ("GET", "/announcements?past=true", None),
        ("DELETE", "/announcements/1", None),
    ],
)
def test_only_admins_may_change_the_rules(
    server: RunningServer, ann: Person, method: str, path: str, body: dict[str, Any] | None
) -> None:
    answer = server.ask(method, path, body, uid=ann.uid)
    assert (answer.status, answer.error["code"]) == (403, "forbidden")
    assert answer.error["hint"]


def test_nobody_raises_their_own_quota(server: RunningServer, ann: Person) -> None:
    me = server.ask("GET", "/whoami", uid=ann.uid).json["user"]["name"]
    assert server.ask("PATCH", f"/users/{me}", {"quota": {"queued_gpus": 1}}).status == 200
    assert server.ask("PATCH", f"/users/{me}", {"quota": {"queued_gpus": None}}, uid=ann.uid).status == 403
    refused = server.ask("POST", "/jobs", {"command": "true", "gpus": 2, "held": True}, uid=ann.uid)
    assert (refused.status, refused.error["code"]) == (409, "quota")
    array = {"command": "true", "gpus": 1, "array": "0-1", "held": True}
    assert server.ask("POST", "/jobs", array, uid=ann.uid).error["code"] == "quota"
    assert server.ask("PATCH", f"/users/{me}", {"quota": {"queued_gpus": None}}).status == 200
    assert server.ask("POST", "/jobs", array, uid=ann.uid).status == 201


def test_a_repeated_submission_is_answered_again_though_it_has_filled_the_quota(server: RunningServer) -> None:
    assert server.ask("PATCH", "/users/root", {"quota": {"queued_gpus": 1}}).status == 200
    body, key = {"command": "true", "gpus": 1, "held": True}, {"Idempotency-Key": "once"}
    first = server.ask("POST", "/jobs", body, headers=key)
    again = server.ask("POST", "/jobs", body, headers=key)
    assert (first.status, again.json["id"]) == (201, first.json["id"])
    assert server.ask("POST", "/jobs", body).error["code"] == "quota"
    assert server.ask("PATCH", "/users/root", {"quota": {"queued_gpus": None}}).status == 200


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/departments/default", {"share": 0}, "share"),
        ("/departments/default", {"share": None}, "share"),
        ("/departments/default", {"share": True}, "share"),
        ("/departments/default", {"data_class": 1}, "data_class"),
        ("/projects/default", {"data_class": 4}, "data_class"),
        ("/projects/default", {"data_class": None}, "data_class"),
        ("/projects/default", {"quota": {"queued_gpus": -1}}, "quota.queued_gpus"),
        ("/projects/default", {"quota": {"gpus": 1}}, "quota.gpus"),
        ("/projects/default", {"quota": None}, "quota"),
        ("/nodes/a100-01", {"labels": {"A": "x"}}, "labels"),
        ("/nodes/a100-01", {"data_class": 4}, "data_class"),
        ("/nodes/a100-01", {"min_data_class": 2}, "min_data_class"),
        ("/nodes/a100-01", {"splits_devices": "yes"}, "splits_devices"),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(
    server: RunningServer, path: str, body: dict[str, Any], field: str
) -> None:
    answer = server.ask("PATCH", path, body)
    assert answer.status == 422, answer.body
    assert field in answer.error["fields"]


@pytest.mark.parametrize("path", ["/departments/none", "/projects/none", "/nodes/none"])
def test_what_does_not_exist_cannot_be_changed(server: RunningServer, path: str) -> None:
    assert server.ask("PATCH", path, {}).status == 404


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("starts_at", "2099-12-03T09:00:00"),
        ("starts_at", "tomorrow"),
        ("starts_at", 4_000_000_000),
        ("starts_at", "0001-01-01T00:00:00+14:00"),
        ("ends_at", "2099-12-03T08:00:00+01:00"),
        ("nodes", []),
        ("nodes", ["n99"]),
        ("weeks", 61),
        ("gpus_per_node", 5),
        ("project", "none"),
        ("name", "A b"),
        ("reason", "two\nlines"),
    ],
)
def test_a_wrong_reservation_is_refused_with_its_field(server: RunningServer, field: str, value: object) -> None:
    soon = _soon()
    answer = server.ask("POST", "/reservations", {**soon, field: value})
    assert answer.status == 422, answer.body
    assert field in answer.error["fields"]
    assert server.ask("GET", "/reservations").json["items"] == []


def test_a_time_without_a_zone_is_refused_with_how_to_write_one(server: RunningServer) -> None:
    answer = server.ask("POST", "/reservations", {**_soon(), "starts_at": "2099-12-03T09:00:00"})
    assert "no time zone" in answer.error["message"]
    assert "+01:00" in answer.error["message"]


def test_a_new_maintenance_names_the_running_jobs_that_may_run_into_it(server: RunningServer) -> None:
    for_long = {"HELIOSTAT_SIMULATED_SECONDS": "6000"}
    long = server.submit(gpus=4, command=["true"], time_limit="30d", env=for_long)
    short = server.submit(gpus=4, command=["true"], time_limit="2h", env=for_long)
    wait_for(lambda: {server.show(job)["state"] for job in (long, short)} == {"running"}, "both run")
    starts_at = datetime.now(UTC) + timedelta(days=1)
    body = {"starts_at": starts_at.isoformat(), "ends_at": (starts_at + timedelta(days=1)).isoformat()}
    made = server.ask("POST", "/reservations", {"name": "fan", "nodes": ["a100-01", "a100-02"], **body}).json
    assert [(job["id"], job["nodes"]) for job in made["running_jobs"]] == [(long, [server.show(long)["node"]])]
    assert made["running_jobs"][0]["ends_at"] > body["ends_at"]
    server.ask("DELETE", "/reservations/fan")
    for job in (long, short):
        server.ask("POST", f"/jobs/{job}/cancel?force=true")
        server.finished(job)


def test_everybody_sees_a_reservation_and_its_overlap_is_a_conflict(server: RunningServer, ann: Person) -> None:
    made = server.ask("POST", "/reservations", _soon())
    assert made.status == 201, made.body
    assert server.ask("GET", "/reservations", uid=ann.uid).json["items"] == [
        {name: value for name, value in made.json.items() if name != "running_jobs"}
    ]
    clash = server.ask("POST", "/reservations", {**_soon(), "name": "other"})
    assert (clash.status, "course" in clash.error["message"]) == (409, True)
    assert server.ask("DELETE", "/reservations/course").status == 204
    assert server.ask("DELETE", "/reservations/course").status == 404


def test_settings_of_a_node_outlive_a_restart(server: RunningServer) -> None:
    body = {"labels": {"disk": "ssd"}, "data_class": 2, "splits_devices": True}
    assert server.ask("PATCH", "/nodes/a100-02", body).status == 200
    server.stop()
    server.start()
    node = server.ask("GET", "/nodes/a100-02").json
    assert (node["labels"], node["data_class"], node["splits_devices"]) == ({"disk": "ssd"}, 2, True)


def _soon() -> dict[str, Any]:
    begin = datetime.now(UTC) + timedelta(days=3)
    return {**COURSE, "starts_at": begin.isoformat(), "ends_at": (begin + timedelta(hours=8)).isoformat()}


def test_a_node_tells_everybody_for_whom_it_is_set_aside_now_or_within_a_week(
    server: RunningServer, ann: Person
) -> None:
    now = datetime.now(UTC)
    times = {"now": (-1, 5), "soon": (48, 49), "later": (24 * 20, 24 * 20 + 1)}
    for name, (start, end) in times.items():
        body = {
            "name": name,
            "nodes": ["a100-02"],
            "starts_at": (now + timedelta(hours=start)).isoformat(),
            "ends_at": (now + timedelta(hours=end)).isoformat(),
        }
        assert server.ask("POST", "/reservations", body).status == 201
    try:
        node = server.ask("GET", "/nodes/a100-02", uid=ann.uid).json
        assert [one["name"] for one in node["reserved"]] == ["now", "soon"]
        assert node["exclusive_job"] is None
        other = next(one for one in server.ask("GET", "/nodes").json["items"] if one["name"] == "a100-01")
        assert other["reserved"] == []
    finally:
        for name in times:
            server.ask("DELETE", f"/reservations/{name}")


def test_a_node_names_the_job_that_is_alone_there(server: RunningServer) -> None:
    body = {"command": "sleep 600", "exclusive": True, "time_limit": 600}
    job_id = server.ask("POST", "/jobs", body).json["id"]
    try:
        wait_for(lambda: server.show(job_id)["state"] == "running", "the job to run")
        alone = [one["exclusive_job"] for one in server.ask("GET", "/nodes").json["items"]]
        assert sorted(alone, key=lambda one: one is None) == [job_id, None]
    finally:
        server.ask("POST", f"/jobs/{job_id}/cancel")


def test_news_are_told_read_by_everybody_and_taken_away(server: RunningServer, bob: Person) -> None:
    made = server.ask(
        "POST", "/announcements", {"text": "<b>new disk</b>", "ends_at": "2031-01-01T00:00:00+01:00"}
    ).json
    assert made["ends_at"] == "2030-12-31T23:00:00Z"
    assert server.ask("GET", "/announcements", uid=bob.uid).json["items"] == [made]
    assert server.ask("DELETE", f"/announcements/{made['id']}").status == 204
    assert server.ask("DELETE", f"/announcements/{made['id']}").status == 404
    assert server.ask("GET", "/announcements").json["items"] == []


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("text", {"text": ""}),
        ("text", {"text": "x" * 2001}),
        ("text", {"text": "\x1b[2J"}),
        ("text", {"text": 7}),
        ("ends_at", {"text": "a", "ends_at": "2031-01-01"}),
        ("ends_at", {"text": "a", "ends_at": "2001-01-01T00:00:00Z"}),
        ("ends_at", {"text": "a", "ends_at": "9999-12-31T23:59:59-14:00"}),
        ("colour", {"text": "a", "colour": "red"}),
    ],
)
def test_news_that_cannot_be_are_refused_with_their_field(
    server: RunningServer, field: str, body: dict[str, Any]
) -> None:
    answer = server.ask("POST", "/announcements", body)
    assert answer.status == 422
    assert list(answer.error["fields"]) == [field]


def test_a_dry_run_makes_all_checks_and_stores_nothing(server: RunningServer) -> None:
    jobs = [
        {"name": "prep", "command": "true"},
        {"command": "true", "after": "prep", "array": "0-2", "env": {"A": "1"}},
    ]
    before = server.ask("GET", "/jobs?limit=1").json["items"]
    answer = server.ask("POST", "/jobs/bulk?dry_run=true", {"jobs": jobs})
    assert (answer.status, answer.json["count"]) == (200, 4), answer.body
    assert [(job["id"], job["name"], job["request"]["project"]) for job in answer.json["jobs"]] == [
        (None, "prep", "default"),
        (None, "true", "default"),
    ]
    assert server.ask("POST", "/jobs?dry_run=true", {"command": "true", "gpus": 99}).status == 422
    assert server.ask("POST", "/jobs?dry_run=true", {"command": "true", "after": 10**6}).status == 422
    assert server.ask("GET", "/jobs?limit=1").json["items"] == before
    submitted = server.ask("POST", "/jobs/bulk", {"jobs": jobs}).json["job_ids"]
    assert submitted == [*range(submitted[0], submitted[0] + 4)]
