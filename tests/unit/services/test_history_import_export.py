"""Export of past jobs as lines of JSON: period, names and pseudonyms."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import insert

from heliostat.config import Home, Settings
from heliostat.errors import Forbidden, Invalid
from heliostat.models import Caller, Job, JobState, PlacementRequest, Resources, Role, User
from heliostat.services.context import Context
from heliostat.services.history_import_export import export_history
from heliostat.simulation.traces.reader import read_trace
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.history import SubmissionPeriod, add_finished_jobs
from unit.auth.stand_ins import new_store
from unit.store.made_up import a_job, add_people

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


def past_job(number: int, **fields: object) -> Job:
    submitted_at = BEGAN + timedelta(hours=number)
    values: dict[str, Any] = {
        "state": JobState.COMPLETED,
        "submitted_at": submitted_at,
        "started_at": submitted_at + timedelta(seconds=10),
        "ended_at": submitted_at + timedelta(seconds=70),
        "attempt": 1,
        "node": "gpu1",
        "resources": Resources(4, 2048, 2, "A100"),
        "time_limit_seconds": 600,
    }
    return a_job(number, **{**values, **fields})


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with new_store(tmp_path) as store:
        store.write(add_people)
        yield cast(Context, SimpleNamespace(settings=Settings(Home(tmp_path)), store=store))


def add(context: Context, *jobs: Job) -> None:
    context.store.write(lambda tx: add_finished_jobs(tx, jobs))


def caller(role: Role = Role.ADMIN) -> Caller:
    return Caller(User("boss", role, None, True, BEGAN), "socket", "local")


def exported(
    context: Context, period: SubmissionPeriod | None = None, anonymous: bool = False
) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in export_history(context, caller(), period or SubmissionPeriod(), anonymous)
    ]


def test_an_ended_job_is_exported_with_its_request_and_run_time(context: Context) -> None:
    add(context, past_job(1, placement=PlacementRequest(tasks=2), preemptible=True))
    job, ending = exported(context)
    assert job.pop("name").startswith("name_")  # a pseudonym: names may hold secrets
    assert job == {
        "id": 1,
        "submitted_at": "2026-03-01T01:00:00Z",
        "started_at": "2026-03-01T01:00:10Z",
        "ended_at": "2026-03-01T01:01:10Z",
        "run_seconds": 60.0,
        "state": "completed",
        "cpus": 4,
        "memory_mib": 2048,
        "gpus": 2,
        "gpu_type": "A100",
        "time_limit_seconds": 600,
        "priority_class": "normal",
        "attempts": 1,
        "preemptions": 0,
        "tasks": 2,
        "preemptible": True,
        "user": "ann",
        "project": "default",
        "department": "default",
    }
    assert ending == {"jobs": 1}


def test_the_run_time_is_that_of_all_attempts_and_the_start_that_of_the_first(context: Context) -> None:
    add(context, past_job(1))

    def second(tx: Transaction) -> None:
        at = (BEGAN + timedelta(hours=2)).timestamp()
        row = {"job_id": 1, "number": 2, "node": "n", "devices": "[]", "state": "completed", "created_at": at}
        tx.conn.execute(insert(schema.attempts), [row | {"started_at": at, "ended_at": at + 30}])

    context.store.write(second)
    job = exported(context)[0]
    assert (job["run_seconds"], job["attempts"], job["started_at"]) == (90.0, 2, "2026-03-01T01:00:10Z")


def test_jobs_without_start_are_exported_and_unfinished_jobs_are_not(context: Context) -> None:
    waiting = replace(past_job(2), state=JobState.PENDING, started_at=None, ended_at=None)
    add(context, past_job(1, state=JobState.CANCELLED, started_at=None), waiting)
    job, ending = exported(context)
    assert (job["state"], job["started_at"], job["run_seconds"], job["attempts"]) == ("cancelled", None, 0.0, 0)
    assert ending == {"jobs": 1}


def test_a_period_includes_its_start_and_excludes_its_end(context: Context) -> None:
    add(context, *(past_job(number) for number in range(1, 6)))
    found = exported(context, SubmissionPeriod(BEGAN + timedelta(hours=2), BEGAN + timedelta(hours=4)))
    assert [job.get("id") for job in found] == [2, 3, None]


def test_pages_contain_each_job_once(context: Context) -> None:
    add(context, *(past_job(number) for number in range(1, 8)))
    lines = export_history(context, caller(), SubmissionPeriod(), page=3)
    assert [json.loads(line).get("id") for line in lines] == [1, 2, 3, 4, 5, 6, 7, None]


def test_pseudonyms_hide_names_and_numbers_and_stay_the_same(context: Context) -> None:
    add(context, past_job(3), past_job(5))
    first, second = exported(context, anonymous=True), exported(context, anonymous=True)
    assert first == second
    assert [job.get("id") for job in first] == [1, 2, None]
    assert first[0]["user"].startswith("user_")
    assert first[0]["user"] == first[1]["user"]
    assert first[0]["project"].startswith("project_")
    assert first[0]["project"].partition("_")[2] != first[0]["department"].partition("_")[2]
    assert "ann" not in json.dumps(first)


def test_pseudonyms_come_from_a_key_that_only_the_server_may_read(context: Context) -> None:
    exported(context, anonymous=True)
    key = context.settings.home.history_key
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_bytes()) == 32
    assert [path.name for path in key.parent.glob("history.key*")] == ["history.key"]


def test_only_admins_can_export_and_the_period_must_be_valid(context: Context) -> None:
    with pytest.raises(Forbidden):
        export_history(context, caller(Role.USER), SubmissionPeriod())
    with pytest.raises(Invalid, match="later than from"):
        export_history(context, caller(), SubmissionPeriod(BEGAN, BEGAN))


def test_an_export_can_be_replayed(context: Context, tmp_path: Path) -> None:
    add(context, past_job(1), past_job(2, state=JobState.CANCELLED, started_at=None))
    (tmp_path / "month.jsonl").write_text("".join(export_history(context, caller(), SubmissionPeriod())))
    trace = read_trace(tmp_path / "month.jsonl")
    assert [(job.run_seconds, job.limit_seconds, job.gpus, job.user) for job in trace.jobs] == [
        (60, 600, 2, "ann")
    ]
    assert trace.skipped == {"never ran": 1}
