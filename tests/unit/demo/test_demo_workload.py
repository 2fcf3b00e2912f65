from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliostat.demo import USERS, DemoJob, generate_history, generate_jobs_of_day, generate_live_jobs
from heliostat.demo.fcfs_simulation import replay_first_come_first_served
from heliostat.engines.simulated.clock import ManualClock
from heliostat.engines.simulated.cluster import demo_nodes, parse_nodes
from heliostat.engines.simulated.engine import SimulatedEngine
from heliostat.models import (
    TERMINAL_STATES,
    Attempt,
    AttemptEnded,
    EndCause,
    Job,
    JobState,
    Node,
    Observation,
    Resources,
)

UNTIL = datetime(2026, 3, 4, 15, 30, tzinfo=UTC)  # a Wednesday afternoon


@pytest.fixture(scope="module")
def month() -> list[DemoJob]:
    return generate_history(seed=1, until=UNTIL, days=30)


def test_the_same_seed_gives_the_same_month_and_another_seed_another(month: list[DemoJob]) -> None:
    assert generate_history(seed=1, until=UNTIL, days=30) == month
    assert generate_history(seed=2, until=UNTIL, days=30) != month


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_month_has_the_shape_of_a_real_one(seed: int) -> None:
    jobs = generate_history(seed, UNTIL, days=30)
    share = {state: count / len(jobs) for state, count in Counter(job.state for job in jobs).items()}
    assert 5500 <= len(jobs) <= 8500
    assert 0.09 <= share[JobState.FAILED] <= 0.15
    assert 0.03 <= share[JobState.CANCELLED] <= 0.07
    assert 0.01 <= sum(job.out_of_memory for job in jobs) / len(jobs) <= 0.03
    assert {job.resources.gpus for job in jobs} == {0, 1, 2, 4, 8}
    assert {job.user for job in jobs} == {person.name for person in USERS}
    assert 0.2 <= sum(job.array_key is not None for job in jobs) / len(jobs) <= 0.6


def test_the_cluster_is_well_used_but_not_hopelessly_full(month: list[DemoJob]) -> None:
    gpu_hours = sum(_held_hours(job) * job.resources.gpus for job in month if job.started_at)
    assert 0.5 <= gpu_hours / (100 * 30 * 24) <= 0.9
    waits = sorted((job.started_at - job.submitted_at).total_seconds() for job in month if job.started_at)
    assert waits[len(waits) // 2] < 3600
    assert waits[-1] > 3600


def test_people_work_on_weekdays_and_by_day(month: list[DemoJob]) -> None:
    weekend = [job for job in month if job.submitted_at.weekday() >= 5]
    by_day = [job for job in month if 8 <= job.submitted_at.hour < 18]
    assert len(weekend) < 0.2 * len(month)
    assert len(by_day) > 0.6 * len(month)


def test_limits_are_usually_two_to_five_times_what_is_needed(month: list[DemoJob]) -> None:
    done = [job for job in month if job.state is JobState.COMPLETED and job.run_seconds > 900]
    usual = [job for job in done if 2 <= job.time_limit_seconds / job.run_seconds <= 5]
    assert len(usual) > 0.7 * len(done)


def test_durations_have_a_heavy_tail(month: list[DemoJob]) -> None:
    seconds = sorted(job.run_seconds for job in month)
    assert sum(seconds[-len(seconds) // 10 :]) > 0.4 * sum(seconds)


def test_every_job_belongs_to_a_project_of_its_user(month: list[DemoJob]) -> None:
    projects = {person.name: person.projects for person in USERS}
    assert all(job.project in projects[job.user] for job in month)


def test_members_of_an_array_share_all_but_their_fate(month: list[DemoJob]) -> None:
    arrays = defaultdict(list)
    for job in month:
        if job.array_key:
            arrays[job.array_key].append(job)
    for members in arrays.values():
        assert len({(job.user, job.name, job.command, job.resources, job.submitted_at) for job in members}) == 1
        assert sorted(job.array_index or 0 for job in members) == list(range(len(members)))


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.PENDING])
def test_what_is_not_over_has_no_end(month: list[DemoJob], state: JobState) -> None:
    for job in (job for job in month if job.state is state):
        assert (job.ended_at, job.cause) == (None, None)
        assert (job.started_at is not None) == (state is JobState.RUNNING)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), days=st.integers(1, 4), hour=st.integers(0, 23))
def test_no_device_is_in_two_jobs_at_once_and_no_node_is_overbooked(seed: int, days: int, hour: int) -> None:
    until = UNTIL.replace(hour=hour)
    _check_places(generate_history(seed, until, days), demo_nodes(), until)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_cluster_too_small_for_its_work_is_not_overbooked_either(seed: int) -> None:
    nodes = parse_nodes("1x8xA100, 1x2xT4, 1xcpu")
    _check_places(generate_history(seed, UNTIL, 2, nodes), nodes, UNTIL)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_job_runs_for_the_least_of_run_limit_and_patience(seed: int) -> None:
    for job in generate_history(seed, UNTIL, days=2):
        assert job.submitted_at < UNTIL
        if job.state not in TERMINAL_STATES:
            continue
        assert job.ended_at is not None
        assert job.ended_at <= UNTIL
        if job.started_at is None:
            assert (job.state, job.devices) == (JobState.CANCELLED, ())
            continue
        assert job.submitted_at <= job.started_at <= job.ended_at
        ends = [job.started_at + timedelta(seconds=s) for s in (job.run_seconds, job.time_limit_seconds)]
        if job.cancel_after_seconds is not None:
            ends.append(job.submitted_at + timedelta(seconds=job.cancel_after_seconds))
        assert job.ended_at == min(ends)


def test_live_goes_on_where_history_stops() -> None:
    until, later = UNTIL, UNTIL + timedelta(days=2)
    known = {(job.submitted_at, job.user, job.name) for job in generate_history(5, until, 3)}
    whole = [(job.submitted_at, job.user, job.name) for job in generate_history(5, later, 5)]
    coming = [(job.submitted_at, job.user, job.name) for job in islice(generate_live_jobs(5, until), 2000)]
    assert [key for key in whole if key not in known] == [key for key in coming if key[0] < later]


def test_live_is_in_order_and_does_not_end() -> None:
    jobs = list(islice(generate_live_jobs(3, UNTIL), 5000))
    assert len(jobs) == 5000
    assert all(a.submitted_at <= b.submitted_at for a, b in pairwise(jobs))
    assert all(job.state is JobState.PENDING and job.submitted_at >= UNTIL for job in jobs)


def test_every_job_fits_on_a_node_of_the_demo_cluster() -> None:
    nodes = demo_nodes()
    wanted = {job.resources for job in islice(generate_live_jobs(3, UNTIL), 5000)}
    assert all(any(_fits(node, resources) for node in nodes) for resources in wanted)


def test_a_day_is_the_same_whenever_it_is_asked_for() -> None:
    day = date(2026, 3, 2)
    assert generate_jobs_of_day(1, day) == generate_jobs_of_day(1, day)
    assert all(job.submitted_at.date() == day for job in generate_jobs_of_day(1, day))


def test_the_simulated_engine_ends_a_job_as_history_says(month: list[DemoJob]) -> None:
    finished = [job for job in month if job.cause and job.cause is not EndCause.STOPPED][:300]
    clock = ManualClock(UNTIL)
    engine = SimulatedEngine(demo_nodes(), clock)
    ends: dict[str, AttemptEnded] = {}
    engine.set_observation_callback(lambda seen: ends.update(_ends(seen)))
    engine.start([_attempt(number, job) for number, job in enumerate(finished)])
    clock.advance(10**7)
    for number, job in enumerate(finished):
        assert job.started_at is not None
        assert job.ended_at is not None
        end = ends[f"{number}.1"]
        assert (end.cause, end.exit_code) == (job.cause, job.exit_code)
        assert end.at - UNTIL == job.ended_at - job.started_at


def test_a_job_that_waited_for_long_gets_a_node_kept_free() -> None:
    nodes = parse_nodes("1x2xT4")
    ones = [_job(minute, gpus=1, run_seconds=3600) for minute in range(0, 24 * 60, 29)]
    both = _job(5, gpus=2, run_seconds=60)
    jobs = sorted([*ones, both], key=lambda job: job.submitted_at)
    seen = replay_first_come_first_served(jobs, nodes, UNTIL + timedelta(days=3))
    (large,) = [job for job in seen if job.resources.gpus == 2]
    assert large.started_at is not None
    assert large.started_at - large.submitted_at < timedelta(hours=8)


def _check_places(jobs: list[DemoJob], nodes: list[Node], until: datetime) -> None:
    by_name = {node.name: node for node in nodes}
    free = {node.name: [node.cpus, node.memory_mib] for node in nodes}
    holders: dict[str, DemoJob] = {}
    for _, starts, job in sorted(_moves(jobs, until), key=lambda move: move[:2]):
        assert job.node is not None
        sign = -1 if starts else 1
        free[job.node][0] += sign * job.resources.cpus
        free[job.node][1] += sign * job.resources.memory_mib
        assert min(free[job.node]) >= 0
        assert len(job.devices) == job.resources.gpus
        own = {device.uuid: device.type for device in by_name[job.node].devices}
        for uuid in job.devices:
            assert own[uuid] == (job.resources.gpu_type or own[uuid])
            if starts:
                assert uuid not in holders
                holders[uuid] = job
            else:
                del holders[uuid]


def _moves(jobs: list[DemoJob], until: datetime) -> Iterable[tuple[datetime, bool, DemoJob]]:
    for job in jobs:
        if job.started_at is not None:
            yield job.started_at, True, job
            yield job.ended_at or until, False, job


def _held_hours(job: DemoJob) -> float:
    assert job.started_at is not None
    return ((job.ended_at or UNTIL) - job.started_at).total_seconds() / 3600


def _fits(node: Node, wanted: Resources) -> bool:
    devices = [device for device in node.devices if device.type == (wanted.gpu_type or device.type)]
    return wanted.gpus <= len(devices) and wanted.cpus <= node.cpus and wanted.memory_mib <= node.memory_mib


def _ends(observations: Iterable[Observation]) -> dict[str, AttemptEnded]:
    return {seen.attempt_id: seen for seen in observations if isinstance(seen, AttemptEnded)}


def _attempt(number: int, demo: DemoJob) -> Attempt:
    # Without devices: here each runs for itself.
    request = demo.make_request()
    job = Job(
        id=number,
        kind="batch",
        name=demo.name,
        state=JobState.STARTING,
        user=demo.user,
        unix_user=demo.user,
        project=demo.project,
        resources=demo.resources,
        spec=request.spec,
        submitted_at=demo.submitted_at,
        time_limit_seconds=request.time_limit_seconds,
    )
    return Attempt(f"{number}.1", job, demo.node or "")


def _job(minute: int, gpus: int, run_seconds: float) -> DemoJob:
    return DemoJob(
        submitted_at=UNTIL + timedelta(minutes=minute),
        user="hsato",
        project="knee-mri",
        name="train",
        command=("python", "train.py"),
        resources=Resources(gpus=gpus),
        time_limit_seconds=36_000,
        run_seconds=run_seconds,
    )
