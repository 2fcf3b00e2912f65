from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, create_engine, insert, select

from heliostat.models import (
    Dependency,
    DependencyCondition,
    Job,
    JobSpec,
    JobState,
    Mount,
    PlacementRequest,
    Resources,
    TaskLayout,
    TaskPlacement,
)
from heliostat.models.retries import RetryPolicy
from heliostat.models.workflows import WorkflowMembership
from heliostat.store import schema
from heliostat.store.job_rows import (
    JOB_COLUMNS,
    JOB_COLUMNS_WITHOUT_SPEC,
    job_to_row,
    row_to_job,
    row_to_job_without_spec,
)

AT = datetime(2026, 11, 17, 12, tzinfo=UTC)
SPEC = JobSpec(
    command=("a", "b"),
    script="#!/bin/sh",
    workdir="/w",
    env={"A": "1"},
    grace_seconds=3.0,
    preempt_signal="USR1",
    image="docker://x",
    runtime="podman",
    mounts=(Mount("/a", "/b", True),),
    network="none",
    upload="u",
    template="torchrun",
)
JOB = Job(
    id=1,
    kind="session",
    name="name",
    state=JobState.RUNNING,
    user="user",
    unix_user="unix",
    project="project",
    resources=Resources(2, 300, 0.5, "A100", 4000),
    spec=SPEC,
    submitted_at=AT,
    time_limit_seconds=5,
    priority=6,
    max_retries=7,
    retries=8,
    array_id=9,
    array_index=10,
    array_limit=11,
    attempt=12,
    node="node",
    devices=("d",),
    started_at=AT + timedelta(seconds=1),
    ended_at=AT + timedelta(seconds=2),
    exit_code=13,
    reason="reason",
    stop_requested="cancel",
    placement=PlacementRequest(2, TaskLayout.SPREAD, True, ("label",), "reservation"),
    places=(TaskPlacement("node", ("d",)), TaskPlacement("other", ("e",))),
    priority_class="urgent",
    preemptible=True,
    preemptions=14,
    overtime=True,
    checkpointed_at=AT + timedelta(seconds=3),
    priority_everywhere=True,
    waited_seconds=15.5,
    waits_since=AT + timedelta(seconds=4),
    booked_at=AT + timedelta(seconds=6),
    dispatched=True,
    origin="slurm:c:1",
    after=(Dependency(3, DependencyCondition.ANY),),
    parents_left=16,
    begin_at=AT + timedelta(seconds=5),
    environment="digest",
    retry=RetryPolicy(("lost",), 17),
    notify=("end",),
    part=WorkflowMembership(1, 2, "key"),
    credit_gpu_hours=18.5,
)


def stored(job: Job, columns: Sequence[ColumnElement[Any]]) -> RowMapping:
    """Written into a table and read from it."""
    engine = create_engine("sqlite://")
    with engine.begin() as conn:
        schema.metadata.create_all(conn, [schema.jobs])
        conn.execute(insert(schema.jobs), job_to_row(job))
        found = conn.execute(select(*columns)).mappings().one()
    engine.dispose()
    return found


def test_what_is_stored_of_a_job_comes_back() -> None:
    assert all(getattr(JOB, one.name) != one.default for one in fields(Job)), "each must show where it goes"
    assert row_to_job(stored(JOB, JOB_COLUMNS)) == JOB
    assert row_to_job_without_spec(stored(JOB, JOB_COLUMNS_WITHOUT_SPEC)) == replace(JOB, spec=JobSpec())


def test_every_column_is_read_and_written() -> None:
    assert {column.name for column in JOB_COLUMNS} == set(schema.jobs.c.keys()) == set(job_to_row(JOB))


def test_a_job_with_nothing_but_a_command_is_small() -> None:
    row = stored(replace(JOB, spec=JobSpec(("true",))), JOB_COLUMNS)
    assert "image" not in row["spec"]
    assert row_to_job(row).spec == JobSpec(("true",))
