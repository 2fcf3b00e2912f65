"""Usage statistics of jobs, nodes and the cluster over time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.errors import Forbidden, NotFound
from heliostat.models import Caller, JobState, Membership, ProjectRole, Resources
from heliostat.services.cluster import stats
from heliostat.services.cluster.efficiency_report import list_job_efficiency
from heliostat.services.cluster.job_usage import describe_efficiency
from heliostat.services.cluster.stats import MAX_POINTS, StatsPeriod, cluster_stats, job_stats, node_stats
from heliostat.services.energy import EnergyEstimate
from heliostat.store import schema
from unit.services.site import Site

MINUTE = timedelta(minutes=1)


def ran(site: Site, number: int, started_at: datetime, ended_at: datetime | None, **fields: Any) -> None:
    state = JobState.RUNNING if ended_at is None else JobState.COMPLETED
    wanted = Resources(cpus=4, memory_mib=65536, gpus=2)
    fields |= {"state": state, "attempt": 1, "started_at": started_at, "ended_at": ended_at, "resources": wanted}
    site.add_job(number, **fields)
    values = {
        "job_id": number,
        "number": 1,
        "node": "n1",
        "devices": "[]",
        "state": state.value,
        "created_at": started_at.timestamp(),
        "started_at": started_at.timestamp(),
        "ended_at": None if ended_at is None else ended_at.timestamp(),
        "places": "[]",
    }
    known = {name: value for name, value in values.items() if name in schema.attempts.c}
    site.context.store.write(lambda tx: tx.conn.execute(schema.attempts.insert().values(**known)))


def sampled(site: Site, number: int, start: datetime, minutes: int, row: list[float | None]) -> None:
    for second in range(0, minutes * 60, 10):
        site.context.samples.add(start.timestamp() + second, {f"job/{number}": row})


def test_a_job_has_series_summary_and_sentences(site: Site) -> None:
    start = site.clock.at - 10 * MINUTE
    ran(site, 1, start, None)
    sampled(site, 1, start, 10, [2.0, 3072.0, 90.0, 1000.0, 0.0, 4.0])
    found = job_stats(site.context, site.root, 1)
    names = [one.name for one in found.series]
    assert names == ["cpu", "memory", "gpu0_utilisation", "gpu0_memory", "gpu1_utilisation", "gpu1_memory"]
    assert found.efficiency.text == "used 1 of 2 GPUs; used at most 3 GiB of 64 GiB of memory"
    assert found.summary.cpus.mean == 2.0
    assert found.series[0].last == 2.0
    assert found.series[0].start_at <= start
    assert found.series[0].start_at.tzinfo is UTC


def test_the_change_fits_on_a_node_of_the_cluster(site: Site) -> None:
    start = site.clock.at - 10 * MINUTE
    for number, peak in ((1, 3072.0), (2, 9000.0)):
        ran(site, number, start, site.clock.at)
        sampled(site, number, start, 10, [4.0, peak, 90.0, 1000.0, 0.0, 4.0])
    assert job_stats(site.context, site.root, 1).efficiency.change == {"gpus": 1, "memory": "4G"}
    too_large = job_stats(site.context, site.root, 2).efficiency  # its nodes have 8 GiB today
    assert (too_large.change, too_large.wasteful) == ({}, True)


def test_a_message_about_the_end_of_a_job_says_what_would_have_been_enough(site: Site) -> None:
    start = site.clock.at - 10 * MINUTE
    ran(site, 1, start, site.clock.at)
    sampled(site, 1, start, 10, [4.0, 3072.0, 90.0, 1000.0, 0.0, 4.0])
    assert describe_efficiency(site.context, 1) == (
        "Used 1 of 2 GPUs; used at most 3 GiB of 64 GiB of memory. `--gpus 1 --memory 4G` would have been enough."
    )
    ran(site, 2, site.clock.at - MINUTE, site.clock.at)
    assert describe_efficiency(site.context, 2) == ""  # too short
    assert describe_efficiency(site.context, 3) == ""  # it does not exist


def test_the_largest_waste_of_a_user_or_a_project_comes_first(site: Site) -> None:
    hour = timedelta(hours=1)
    site.project("vision")
    ada, member = site.person("ada", "vision"), site.person("bert", "vision")
    bert = replace(member, user=replace(member.user, memberships=(Membership("vision", ProjectRole.MANAGER),)))
    for number, user, load in ((1, "ada", 90.0), (2, "ada", 10.0), (3, "bert", 50.0)):
        ran(site, number, site.clock.at - 2 * hour, site.clock.at - hour, user=user, project="vision")
        sampled(site, number, site.clock.at - 2 * hour, 60, [4.0, 60000.0, load, 1000.0, load, 1000.0])
    ran(site, 4, site.clock.at - 200 * hour, site.clock.at - 199 * hour, user="ada", project="vision")

    def ids(caller: Caller, *query: Any) -> list[int]:
        return [each.job.id for each in list_job_efficiency(site.context, caller, *query)]

    assert ids(ada) == ids(ada, "vision") == [2, 1]
    assert ids(member, "vision") == [3]  # a member sees only their own jobs
    assert ids(bert, "vision") == ids(site.root, "vision") == [2, 3, 1]
    assert ids(site.root) == ids(ada, "default") == []
    assert ids(ada, "vision", site.clock.at) == []
    [second, _] = list_job_efficiency(site.context, ada)
    assert (second.unused_gpu_hours, second.unused_cpu_hours) == (1.8, 0.0)


def test_the_energy_of_a_job_is_estimated_from_the_power_of_its_gpus(site: Site) -> None:
    start = site.clock.at - 60 * MINUTE
    ran(site, 1, start, site.clock.at)
    assert job_stats(site.context, site.root, 1).energy is None
    for second in range(0, 3600, 10):
        site.context.samples.add(start.timestamp() + second, {"job-power/1": [350.0]})
    assert job_stats(site.context, site.root, 1).energy == EnergyEstimate(0.35, None)


def test_energy_is_measured_only_if_all_its_power_was(site: Site) -> None:
    start = site.clock.at - 60 * MINUTE
    ran(site, 1, start, site.clock.at)
    for second in range(0, 3600, 10):
        site.context.samples.add(start.timestamp() + second, {"job-power/1": [350.0, 1.0]})
    assert job_stats(site.context, site.root, 1).energy == EnergyEstimate(0.35, None, "measured")
    site.context.samples.add(site.clock.at.timestamp(), {"job-power/1": [350.0, 0.0]})
    measured = job_stats(site.context, site.root, 1).energy
    assert measured is not None
    assert measured.source == "estimate"


def test_a_waiting_job_has_no_series(site: Site) -> None:
    site.add_job(1)
    found = job_stats(site.context, site.root, 1)
    assert (found.series, found.efficiency.text) == ((), "has not run yet")


def test_only_samples_of_the_run_time_are_shown(site: Site) -> None:
    start = site.clock.at - 60 * MINUTE
    ran(site, 1, start, start + 5 * MINUTE)
    sampled(site, 1, start, 5, [1.0, 100.0])
    [cpu, _] = job_stats(site.context, site.root, 1).series
    assert len(cpu.mean) * cpu.step_seconds <= 5 * 60 + 2 * cpu.step_seconds
    assert {value for value in cpu.mean if value is not None} == {1.0}


def test_statistics_need_the_permission_to_read_the_log(site: Site) -> None:
    site.add_job(1)
    with pytest.raises(Forbidden):
        job_stats(site.context, site.person("bert"), 1)
    with pytest.raises(NotFound):
        job_stats(site.context, site.root, 2)
    with pytest.raises(NotFound):
        node_stats(site.context, site.root, "nowhere")


@pytest.mark.parametrize("span", StatsPeriod)
def test_there_are_never_more_points_than_a_plot_can_show(site: Site, span: StatsPeriod) -> None:
    end = site.clock.at.timestamp()
    for back in range(0, 3600, 10):
        site.context.samples.add(end - 3600 + back, {"cluster": [100.0] * 11, "node/n1": [1.0, 2.0]})
    for found in (cluster_stats(site.context, site.root, span), node_stats(site.context, site.root, "n1", span)):
        assert {len(one.mean) for one in found.series} == {len(found.series[0].max)}
        assert 100 < len(found.series[0].mean) <= MAX_POINTS
        assert any(value is not None for value in found.series[0].mean[-3:])


@given(st.floats(0, 2e9), st.floats(0, 4e7), st.sampled_from([1, 7, 10, 60, 300, 3600]))
def test_a_grid_covers_its_time_in_few_round_steps(start: float, seconds: float, coarsest: int) -> None:
    grid = stats._grid(start, start + seconds, coarsest)
    assert grid.first <= start
    assert grid.first + grid.step * grid.count > start + seconds
    assert grid.step >= coarsest
    assert grid.step % coarsest == 0
    assert grid.first % grid.step == 0
    assert grid.count <= MAX_POINTS + 1


def test_rolled_up_samples_give_the_same_report(site: Site) -> None:
    start = site.clock.at - timedelta(days=3)
    ran(site, 1, start, start + 30 * MINUTE)
    sampled(site, 1, start, 30, [2.0, 3072.0, 90.0, 1000.0, 0.0, 4.0])
    before = job_stats(site.context, site.root, 1)
    for _ in range(3):
        site.context.samples.flush(site.clock.at.timestamp())
    site.context.samples.compact(site.clock.at.timestamp())
    after = job_stats(site.context, site.root, 1)
    assert after.series[0].step_seconds == 300
    assert after.efficiency == before.efficiency
    assert replace(after.summary, sampled_seconds=0) == replace(before.summary, sampled_seconds=0)
