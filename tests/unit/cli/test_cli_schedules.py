"""What `helio schedule` sends and prints, and what `helio submit` makes of jobs of Chronos."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heliostat.models.job_fields import JOB_FIELDS
from unit.client.stand_in_server import answer

ONE = {
    "id": 7,
    "name": "nightly",
    "user": "anna",
    "project": "vision",
    "state": "active",
    "schedule": "0 2 * * *",
    "time_zone": "Europe/Berlin",
    "parents": [],
    "overlap": "skip",
    "catch_up": "last",
    "epsilon_seconds": None,
    "retries": 0,
    "ends_after": None,
    "next_at": "2030-11-17T01:00:00Z",
    "fired": 3,
    "succeeded": 2,
    "failed": 1,
    "job": {"command": ["python", "evaluate.py"]},
    "next_times": ["2030-11-17T01:00:00Z"],
}
FIRING = {
    "due_at": "2026-11-16T01:00:00Z",
    "state": "missed",
    "reason": "4 due times were not fired in time",
    "job_id": None,
    "tries": 1,
    "count": 4,
    "by_hand": False,
}


def sent(server: Any, at: int = 0) -> tuple[str, Any]:
    head, _, body = server.requests[at].partition(b"\r\n\r\n")
    return head.split(b" HTTP")[0].decode(), json.loads(body) if body else None


def test_a_schedule_is_made_and_its_next_times_are_shown(helio: Any, serve: Callable[..., Any]) -> None:
    server = serve(answer(ONE, 201))
    words = ["--at", "0 2 * * *", "--zone", "Europe/Berlin", "--overlap", "queue", "--gpus", "1", "--retries", "2"]
    ran = helio("schedule", "create", "nightly", *words, "--", "python", "evaluate.py", "--epochs", "3")
    assert ran.code == 0, ran.err
    assert "Schedule 7 (nightly) is active." in ran.out
    assert "Sun 2030-11-17 02:00:00 CET" in ran.out, "in the time zone of the schedule"
    line, body = sent(server)
    assert line == "POST /api/v1/schedules"
    assert body["job"]["command"] == ["python", "evaluate.py", "--epochs", "3"]
    assert body["job"]["gpus"] == 1
    assert (body["schedule"], body["overlap"], body["retries"]) == ("0 2 * * *", "queue", 2)
    assert "catch_up" not in body


def test_create_takes_the_options_of_run(helio: Any, serve: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("#!/bin/sh\npython train.py\n")
    server = serve(answer(ONE, 201))
    words = ["--array", "0-3", "--gpu-type", "A100", "--env", "A=1", "--notify", "failed", "--isolate"]
    words += ["--mount", "/data", "--max-retries", "2", "--begin", "+2h", "--script", str(tmp_path / "train.sh")]
    ran = helio("schedule", "create", "nightly", "--at", "@daily", *words)
    assert ran.code == 0, ran.err
    job = sent(server)[1]["job"]
    assert (job["array"], job["gpu_type"], job["env"], job["notify"]) == ("0-3", "A100", {"A": "1"}, ["failed"])
    assert (job["mounts"], job["max_retries"], job["begin"]) == (["/data:/data"], 2, "+2h")
    assert (job["script"], job["runtime"]) == ("#!/bin/sh\npython train.py\n", "bubblewrap")


def test_only_the_name_and_dependencies_on_jobs_are_options_of_run_and_not_of_create() -> None:
    run = {field.name for field in JOB_FIELDS if "run" in field.cli_commands}
    create = {field.name for field in JOB_FIELDS if "schedule" in field.cli_commands}
    assert run - create == {"name", "after", "after_any", "after_failed", "after_each"}


def test_options_change_the_job_of_a_file_whose_paths_are_relative_to_here(
    helio: Any, serve: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("command: python report.py\ngpus: 1\nworkdir: reports\nenv: {EPOCHS: 3}\n")
    server = serve(answer(ONE, 201))
    ran = helio("schedule", "create", "report", "--at", "@daily", "--file", "job.yaml", "--gpus", "2")
    assert ran.code == 0, ran.err
    job = sent(server)[1]["job"]
    assert (job["gpus"], job["workdir"], job["env"]) == (2, str(tmp_path / "reports"), {"EPOCHS": "3"})


def test_a_schedule_after_others_has_parents_and_a_job_may_come_from_a_file(
    helio: Any, serve: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text("command: python report.py\ntime_limit: 1h\n")
    server = serve(answer({**ONE, "schedule": None, "next_at": None, "next_times": []}, 201))
    ran = helio(
        "schedule", "create", "report", "--after", "a", "--after", "b", "--file", str(tmp_path / "job.yaml")
    )
    assert ran.code == 0, ran.err
    assert "No firing times." in ran.out
    _, body = sent(server)
    assert (body["parents"], body["schedule"]) == (["a", "b"], None)
    assert body["job"]["time_limit"] == "1h"


def test_a_dry_run_only_asks_for_the_times(helio: Any, serve: Callable[..., Any]) -> None:
    server = serve(answer({"times": ["2030-11-17T01:00:00Z"]}))
    ran = helio("schedule", "create", "x", "--at", "@daily", "--dry-run", "--json")
    assert json.loads(ran.out) == {"times": ["2030-11-17T01:00:00Z"]}
    assert sent(server)[0] == "POST /api/v1/schedules/preview"


@pytest.mark.parametrize(
    ("words", "message"),
    [(["create", "x", "--at", "@daily"], "The command is missing"), (["edit", "x"], "Nothing to change")],
)
def test_nothing_to_run_or_to_change_is_refused_before_anything_is_sent(
    helio: Any, words: list[str], message: str
) -> None:
    ran = helio("schedule", *words)
    assert ran.code == 2
    assert message in ran.err


def test_schedules_are_listed_and_one_is_shown_with_its_firings(helio: Any, serve: Callable[..., Any]) -> None:
    serve(answer({"items": [ONE, {**ONE, "name": "c", "schedule": None, "parents": [7]}]}))
    ran = helio("schedule", "list")
    assert "0 2 * * *" in ran.out
    assert "after 7" in ran.out


def test_one_is_shown_with_what_was_missed(helio: Any, serve: Callable[..., Any]) -> None:
    serve(answer(ONE), answer({"items": [FIRING]}))
    ran = helio("schedule", "show", "nightly")
    assert ran.code == 0, ran.err
    assert "missed 4" in ran.out
    assert "not fired in time" in ran.out
    assert "0 2 * * * (Europe/Berlin)" in ran.out


@pytest.mark.parametrize(
    ("verb", "line"),
    [
        ("pause", "POST /api/v1/schedules/a%20b/pause"),
        ("resume", "POST /api/v1/schedules/a%20b/resume"),
        ("remove", "DELETE /api/v1/schedules/a%20b"),
    ],
)
def test_verbs_name_the_schedule_whatever_it_is_called(
    helio: Any, serve: Callable[..., Any], verb: str, line: str
) -> None:
    server = serve(answer(None, 204) if verb == "remove" else answer(ONE))
    assert helio("schedule", verb, "a b").code == 0
    assert sent(server)[0] == line


def test_run_says_which_job_it_is(helio: Any, serve: Callable[..., Any]) -> None:
    server = serve(answer({**FIRING, "job_id": 12}, 201))
    assert "helio logs -f 12" in helio("schedule", "run", "nightly").out
    assert b"Idempotency-Key" in server.requests[0]


@pytest.mark.parametrize("times", ["*/5 * * * *", "@daily", "R/2030-01-01T00:00:00Z/P1D", "R5//PT1H"])
def test_next_takes_times_as_well_as_names(helio: Any, serve: Callable[..., Any], times: str) -> None:
    server = serve(answer({"times": []}))
    assert helio("schedule", "next", times).code == 0
    assert sent(server)[1]["schedule"] == times


def test_jobs_of_chronos_become_schedules_parents_first(
    helio: Any, serve: Callable[..., Any], tmp_path: Path
) -> None:
    jobs = [
        {"name": "child", "command": "true", "parents": ["top"]},
        {"name": "top", "command": "true", "schedule": "R//PT1H"},
    ]
    (tmp_path / "chronos.json").write_text(json.dumps(jobs))
    server = serve(answer({**ONE, "name": "top"}, 201), answer({**ONE, "name": "child", "next_at": None}, 201))
    ran = helio("submit", str(tmp_path / "chronos.json"))
    assert ran.code == 0, ran.err
    assert [sent(server, at)[1]["name"] for at in (0, 1)] == ["top", "child"]
    assert sent(server)[0] == "POST /api/v1/schedules/chronos"
    assert "Schedule 7 (child) is active." in ran.out


def test_jobs_of_chronos_and_others_do_not_mix(helio: Any, tmp_path: Path) -> None:
    jobs = [{"command": "true"}, {"name": "top", "command": "true", "schedule": "R//PT1H"}]
    (tmp_path / "mixed.json").write_text(json.dumps(jobs))
    ran = helio("submit", str(tmp_path / "mixed.json"))
    assert ran.code == 2
    assert "cannot be in one file" in ran.err


@pytest.mark.parametrize(
    ("options", "body"),
    [
        (("--at", "@hourly"), {"schedule": "@hourly", "parents": []}),
        (("--after", "first"), {"schedule": None, "parents": ["first"]}),
        (("--name", "other", "--retries", "2"), {"name": "other", "retries": 2}),
    ],
)
def test_what_is_edited_is_sent_and_nothing_else(
    helio: Any, serve: Callable[..., Any], options: tuple[str, ...], body: dict[str, Any]
) -> None:
    server = serve(answer(ONE))
    assert helio("schedule", "edit", "nightly", *options).code == 0
    assert sent(server) == ("PATCH /api/v1/schedules/nightly", body)
