"""GPU-hours granted, used, idle and returned, from samples and attempts; and the preview of the idle ladder."""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert

from heliostat.errors import Forbidden
from heliostat.models import JobState, PlacementRequest, ProjectRole, Resources
from heliostat.models.fair_use import IdleState
from heliostat.models.samples import job_subject
from heliostat.services.accounts import projects
from heliostat.services.cluster.usage_reports import PeriodRequest
from heliostat.services.fair_use.ladder_preview import preview_idle_ladder
from heliostat.services.fair_use.waste_report import WasteReportLine, waste_report, waste_report_csv
from heliostat.store import idle_jobs, schema
from heliostat.store.sample_chunks import SampleChunk
from heliostat.store.samples import SampleStore
from unit.services.site import Site

HOUR = timedelta(hours=1)
NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
MARCH = PeriodRequest("2026-03")


@pytest.fixture
def cluster(site: Site, tmp_path: Path) -> Iterator[Site]:
    site.clock.at = NOW
    vars(site.context)["samples"] = SampleStore(tmp_path / "samples.db", 60)
    yield site
    site.context.samples.close()


def ran(site: Site, number: int, hours: float, percent: list[float], **fields: Any) -> None:
    """An ended job on GPUs with these utilisations, sampled in steps of five minutes."""
    start = NOW - 48 * HOUR
    values: dict[str, Any] = {"state": JobState.CANCELLED, "attempt": 1, "started_at": start}
    values |= {"ended_at": start + hours * HOUR, "resources": Resources(gpus=len(percent))}
    job = site.add_job(number, **(values | fields))
    row = {"job_id": number, "number": 1, "node": "n1", "devices": "[]", "state": "cancelled"}
    times = (job.started_at, job.started_at, job.ended_at)
    row |= {
        name: at.timestamp()
        for name, at in zip(("created_at", "started_at", "ended_at"), times, strict=True)
        if at
    }
    site.context.store.write(lambda tx: tx.conn.execute(insert(schema.attempts).values(**row)))
    columns = [1.0, 10.0, *(value for one in percent for value in (one, 5.0))]
    if percent:
        samples = np.tile(np.array(columns), (max(1, int(hours * 12)), 1))
        chunk = SampleChunk(int(start.timestamp()), 300, samples, samples)
        site.context.samples.add_history({job_subject(number): chunk})


def test_used_and_idle_hours_are_counted_for_each_gpu(cluster: Site) -> None:
    ran(cluster, 1, 2, [90.0, 0.0])
    ran(cluster, 2, 1, [], resources=Resources(gpus=4))
    assert waste_report(cluster.context, cluster.root, MARCH, "user") == [
        WasteReportLine("2026-03", "root", 2, 8.0, 2.0, 2.0, 0.0)
    ]


def test_jobs_that_share_a_gpu_are_granted_but_not_measured(cluster: Site) -> None:
    ran(cluster, 1, 2, [0.0], resources=Resources(gpus=0.5))
    (line,) = waste_report(cluster.context, cluster.root, MARCH, "project")
    assert (line.granted_gpu_hours, line.used_gpu_hours, line.idle_gpu_hours) == (1.0, 0.0, 0.0)


def test_gpus_of_all_tasks_count(cluster: Site) -> None:
    ran(cluster, 1, 1, [0.0] * 4, resources=Resources(gpus=2), placement=PlacementRequest(tasks=2))
    (line,) = waste_report(cluster.context, cluster.root, MARCH, "department")
    assert (line.granted_gpu_hours, line.idle_gpu_hours) == (4.0, 4.0)


def test_means_of_an_hour_count_for_the_whole_hour(cluster: Site) -> None:
    ran(cluster, 1, 2, [0.0])
    cluster.context.samples.compact((NOW + 40 * 24 * HOUR).timestamp())
    (line,) = waste_report(cluster.context, cluster.root, MARCH, "user")
    assert line.idle_gpu_hours == 2.0


def test_returned_hours_count_in_the_period_of_the_end(cluster: Site) -> None:
    ran(cluster, 1, 2, [0.0])
    returned = IdleState(1, 1, returned_gpu_hours=1.5)
    cluster.context.store.write(lambda tx: idle_jobs.set_idle_state(tx, returned))
    (line,) = waste_report(cluster.context, cluster.root, MARCH, "user")
    assert line.returned_gpu_hours == 1.5
    day = (NOW - 48 * HOUR).date()
    (line,) = waste_report(cluster.context, cluster.root, PeriodRequest(None, day, day), "user")
    assert line.returned_gpu_hours == 1.5


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.01, 40), st.lists(st.floats(0, 100), min_size=1, max_size=3)), min_size=1, max_size=3
    )
)
def test_used_and_idle_hours_never_exceed_the_granted_ones(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[float, list[float]]]
) -> None:
    from unit.services.site import new_site

    with new_site(tmp_path_factory.mktemp("site")) as site:
        site.clock.at = NOW
        vars(site.context)["samples"] = SampleStore(tmp_path_factory.mktemp("samples") / "s.db", 60)
        for number, (hours, percent) in enumerate(jobs, 1):
            ran(site, number, hours, percent)
        (line,) = waste_report(site.context, site.root, MARCH, "user")
        assert line.used_gpu_hours + line.idle_gpu_hours <= line.granted_gpu_hours + 0.02
        site.context.samples.close()


def test_users_see_their_jobs_managers_those_of_their_project_and_admins_all(cluster: Site) -> None:
    cluster.project("vision")
    cluster.person("ada", "vision")
    cluster.person("max", "vision")
    projects.add_member(cluster.context, cluster.root, "vision", "max", ProjectRole.MANAGER)
    ran(cluster, 1, 1, [0.0], user="ada", project="vision")
    ran(cluster, 2, 1, [0.0])

    def seen_by(name: str) -> list[str]:
        caller = replace(cluster.root, user=cluster.context.authenticator and _user(cluster, name))
        return [line.name for line in waste_report(cluster.context, caller, MARCH, "user")]

    assert seen_by("ada") == ["ada"]
    assert seen_by("max") == ["ada"]
    assert sorted(seen_by("root")) == ["ada", "root"]


def _user(site: Site, name: str) -> Any:
    from heliostat.store.accounts import find_user

    with site.context.store.read() as conn:
        return find_user(conn, name)


def test_the_csv_names_its_columns(cluster: Site) -> None:
    ran(cluster, 1, 2, [0.0])
    text = waste_report_csv(waste_report(cluster.context, cluster.root, MARCH, "user"), "user")
    (head, line) = csv.reader(io.StringIO(text))
    assert dict(zip(head, line, strict=True))["idle_gpu_hours"] == "2.0"


def test_the_preview_says_when_an_idle_job_would_have_ended(cluster: Site) -> None:
    ran(cluster, 1, 10, [0.0, 0.0])
    ran(cluster, 2, 10, [0.0, 80.0])
    ran(cluster, 3, 10, [0.0], resources=Resources(gpus=0.5))
    ran(cluster, 4, 10, [0.0], kind="session")
    first, second = preview_idle_ladder(cluster.context, cluster.root, MARCH)
    assert [planned.step for planned in first.steps] == ["note", "message", "manager", "end"]
    assert (first.job_id, first.returned_gpu_hours) == (1, 16.0)
    assert first.steps[-1].at == NOW - 46 * HOUR
    assert (second.job_id, second.returned_gpu_hours) == (4, 0.0)


def test_only_admins_see_the_preview(cluster: Site) -> None:
    with pytest.raises(Forbidden):
        preview_idle_ladder(cluster.context, cluster.person("ada"), MARCH)


def test_a_report_without_samples_shows_what_was_granted(cluster: Site) -> None:
    cluster.context.samples.close()
    vars(cluster.context)["samples"] = SampleStore(Path("/nonexistent/samples.db"), 60)
    ran(cluster, 1, 2, [], resources=Resources(gpus=1))
    (line,) = waste_report(cluster.context, cluster.root, MARCH, "user")
    assert (line.granted_gpu_hours, line.used_gpu_hours) == (2.0, 0.0)
