"""Why, when, shares and reports over HTTP: what is said, to whom, and what is refused."""

from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root

pytestmark = needs_root
BRIEF = {"HELIOSTAT_SIMULATED_SECONDS": "0.2"}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer('server.engine = "simulated"\nserver.simulated_nodes = "1x4xA100,1x2xT4"\n')
    yield server
    server.remove()


@pytest.fixture(scope="module")
def full(server: RunningServer, two_unix_users: list[Person]) -> tuple[int, int]:
    """Ann's job holds all A100; Bob waits for them."""
    ann, bob = two_unix_users
    forever = {"HELIOSTAT_SIMULATED_SECONDS": "inf"}
    body = {"gpus": 4, "gpu_type": "A100", "time_limit": "8h", "name": "train", "env": forever}
    holder = server.submit(ann.uid, command="train", **body)
    wait_for(lambda: server.show(holder, ann.uid)["state"] == "running", "the first job to run")
    return holder, server.submit(bob.uid, command="train", **body)


def test_a_waiting_job_says_why_and_soon_when(server: RunningServer, bob: Person, full: tuple[int, int]) -> None:
    path = f"/jobs/{full[1]}/why"
    told = wait_for(
        lambda: (told := server.ask("GET", path, uid=bob.uid).json)["forecast"] and told, "the first forecast"
    )
    assert "needs 4 A100 on one node" in told["sentence"]
    assert (told["position"], told["pending"], told["blocked_by"]) == (1, 1, "resources")
    forecast = told["forecast"]
    assert forecast["earliest_at"] <= forecast["likely_at"] <= forecast["latest_at"]
    assert forecast["confidence"] is None  # no outcomes are known yet
    assert server.show(full[1], bob.uid)["forecast"] is not None
    assert "what_if" not in told


def test_what_if_names_what_would_start_now(server: RunningServer, bob: Person, full: tuple[int, int]) -> None:
    told = server.ask("GET", f"/jobs/{full[1]}/why?what_if=true", uid=bob.uid).json
    assert told["what_if"] == []  # four T4 are not there, one A100 is not free
    foreseen = server.ask("POST", "/when", {"gpus": 1, "gpu_type": "A100", "time_limit": "1h"}, uid=bob.uid).json
    assert [(one["description"], one["starts_now"]) for one in foreseen["what_if"]] == [
        ("any GPU type with 6 CPUs and 48 GiB", True)
    ]
    assert foreseen["forecast"]["limits_at"] is not None


def test_nobody_elses_job_is_explained(server: RunningServer, bob: Person, full: tuple[int, int]) -> None:
    answer = server.ask("GET", f"/jobs/{full[0]}/why", uid=bob.uid)
    assert (answer.status, answer.error["code"]) == (403, "forbidden")
    listed = server.ask("GET", "/jobs", uid=bob.uid).json["items"]
    assert all(job["forecast"] is None for job in listed if job["name"] is None)


def test_jobs_that_do_not_wait_have_their_sentence_too(
    server: RunningServer, ann: Person, full: tuple[int, int]
) -> None:
    held = server.submit(ann.uid, command="true", held=True)
    assert f"helio release {held}" in server.ask("GET", f"/jobs/{held}/why", uid=ann.uid).json["sentence"]
    assert "runs on " in server.ask("GET", f"/jobs/{full[0]}/why?what_if=true", uid=ann.uid).json["sentence"]
    server.ask("POST", f"/jobs/{held}/cancel", uid=ann.uid)
    told = server.ask("GET", f"/jobs/{held}/why", uid=ann.uid).json
    assert told["sentence"].startswith("cancelled at ")
    assert told["position"] is told["forecast"] is None
    assert server.ask("GET", "/jobs/999999/why", uid=ann.uid).status == 404


def test_asking_when_stores_nothing_and_is_checked_like_a_submission(server: RunningServer, ann: Person) -> None:
    before = server.jobs()
    assert server.ask("POST", "/when", {"gpus": 2}, uid=ann.uid).status == 200
    assert server.ask("POST", "/when", {"gpus": 2, "array": "0-9", "held": True}, uid=ann.uid).status == 200
    for body, status, code in (
        ({"gpus": 99}, 422, "impossible"),
        ({"gpus": -1}, 422, "invalid"),
        ({"gpuss": 1}, 422, "invalid"),
        ({"project": "nowhere"}, 422, "invalid"),
        ({"priority_class": "vip"}, 422, "invalid"),
        ({"priority": 5}, 403, "forbidden"),
    ):
        answer = server.ask("POST", "/when", body, uid=ann.uid)
        assert (answer.status, answer.error["code"]) == (status, code), body
        assert answer.error["hint"]
    assert server.jobs() == before


def test_a_login_is_needed(server: RunningServer) -> None:
    for method, path in (
        ("GET", "/share"),
        ("GET", "/share/delivery"),
        ("GET", "/report"),
        ("POST", "/when"),
        ("GET", "/jobs/1/why"),
    ):
        assert server.ask(method, path, {} if method == "POST" else None, tcp=True).status == 401


def _people(tree: list[dict[str, object]], project: str) -> list[str]:
    projects = [one for department in tree for one in department["children"]]  # type: ignore[attr-defined]
    return [user["name"] for one in projects if one["name"] == project for user in one["children"]]


def test_the_share_tree_names_all_projects_and_only_people_of_ones_own(
    server: RunningServer, ann: Person, bob: Person, full: tuple[int, int]
) -> None:
    assert server.ask("POST", "/projects", {"name": "secret", "department": "default"}).status == 201
    assert server.ask("PUT", f"/projects/secret/members/{ann.name}", {"role": "member"}).status == 200
    job = server.submit(ann.uid, command="true", project="secret", gpus=1, env=BRIEF)
    server.finished(job, ann.uid)
    trees = {uid: server.ask("GET", "/share", uid=uid).json["items"] for uid in (None, ann.uid, bob.uid)}
    assert [_people(trees[uid], "secret") for uid in (None, ann.uid, bob.uid)] == [[ann.name], [ann.name], []]
    assert sorted(_people(trees[bob.uid], "default")) == sorted([ann.name, bob.name])
    assert [one["name"] for one in trees[bob.uid][0]["children"]] == ["default", "secret"]
    assert trees[bob.uid][0]["usage_gpu_hours"] > 0


def test_entitled_and_delivered_are_shown_of_all_projects_and_only_people_of_ones_own(
    server: RunningServer, ann: Person, bob: Person, full: tuple[int, int]
) -> None:
    assert server.ask("POST", "/projects", {"name": "hidden", "department": "default"}).status == 201
    assert server.ask("PUT", f"/projects/hidden/members/{ann.name}", {"role": "member"}).status == 200
    server.finished(server.submit(ann.uid, command="true", project="hidden", gpus=1, env=BRIEF), ann.uid)
    seen = {uid: server.ask("GET", "/share/delivery", uid=uid).json for uid in (None, ann.uid, bob.uid)}
    people = [_people(seen[uid]["items"], "hidden") for uid in (None, ann.uid, bob.uid)]
    assert people == [[ann.name], [ann.name], []]
    (default,) = seen[bob.uid]["items"]
    steps = default["delivered_by_step"]
    assert (len(steps), seen[bob.uid]["step_days"]) == (15, 1)
    assert sum(steps) == pytest.approx(default["delivered_gpu_hours"], abs=0.1)
    assert default["entitled_gpu_hours"] == default["delivered_gpu_hours"]


@pytest.mark.parametrize("since", ["2999-01-01", "0001-01-01", "yesterday", "1"])
def test_a_day_that_is_no_day_or_too_far_away_is_refused(server: RunningServer, since: str) -> None:
    answer = server.ask("GET", f"/share/delivery?since={since}")
    assert (answer.status, list(answer.error["fields"])) == (422, ["since"])
    assert answer.error["hint"]


def test_the_report_shows_everybody_to_admins_and_else_oneself(
    server: RunningServer, ann: Person, bob: Person, full: tuple[int, int]
) -> None:
    server.finished(server.submit(bob.uid, command="true", gpus=1, gpu_type="T4", env=BRIEF), bob.uid)
    names = {
        uid: {one["name"] for one in server.ask("GET", "/report?by=user", uid=uid).json["items"]}
        for uid in (None, ann.uid, bob.uid)
    }
    assert names == {None: {ann.name, bob.name}, ann.uid: {ann.name}, bob.uid: {bob.name}}
    server.ask("PUT", f"/projects/default/members/{bob.name}", {"role": "manager"})
    managed = server.ask("GET", "/report?by=user", uid=bob.uid).json["items"]
    assert {one["name"] for one in managed} == {ann.name, bob.name}
    server.ask("PUT", f"/projects/default/members/{bob.name}", {"role": "member"})


def test_the_report_is_by_gpu_type_of_some_days(server: RunningServer, full: tuple[int, int]) -> None:
    items = server.ask("GET", "/report?by=gpu_type&from=2020-01-01").json["items"]
    assert {one["name"] for one in items} >= {"A100"}
    assert items[0]["period"].startswith("2020-01-01..")
    assert server.ask("GET", "/report?by=gpu_type&from=2020-01-01&to=2020-01-02").json["items"] == []


def test_the_report_comes_as_csv(server: RunningServer, full: tuple[int, int]) -> None:
    answer = server.ask("GET", "/report?by=department&format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    head, line, *_ = answer.body.decode().split("\r\n")
    assert head.startswith("period,department,jobs,gpu_hours")
    assert line.split(",")[1] == "default"


@pytest.mark.parametrize(
    "query",
    [
        "month=2026-13",
        "month=nonsense",
        "month=0001-01",
        "month=9999-12",
        "by=cat",
        "format=xml",
        "month=%00",
        "from=x",
        "month=2026-11&to=2026-11-03",
    ],
)
def test_a_wrong_question_is_refused_with_a_hint(server: RunningServer, query: str) -> None:
    answer = server.ask("GET", f"/report?{query}")
    assert (answer.status, answer.error["code"]) == (422, "invalid")
    assert answer.error["hint"]
