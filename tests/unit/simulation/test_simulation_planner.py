"""The live planner in a replay: no node is overcommitted, no job is lost, presets behave as documented."""

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliostat.models import ACTIVE_STATES, Job, Quota, Reservation
from heliostat.simulation.cluster import ReplayCluster, parse_cluster
from heliostat.simulation.comparison import QueuePlanner
from heliostat.simulation.policies import read_policy
from heliostat.simulation.replay import AttemptSpan, replay
from heliostat.simulation.traces.trace import TraceJob
from heliostat.simulation.workload import Workload, build_workload
from support.hypothesis_examples import example_count
from unit.simulation.reference_planners import InOrder, workload_of

PRESETS = ["fifo", "easy", "sjf", "las", "fairshare"]
MADE = st.builds(
    TraceJob,
    submitted_at=st.integers(0, 50),
    run_seconds=st.integers(0, 40),
    limit_seconds=st.integers(40, 100),
    gpus=st.sampled_from([0, 0.5, 1, 2, 3, 4, 6, 8]),
    user=st.sampled_from(["ann", "bob"]),
    project=st.sampled_from(["vision", "speech"]),
    priority_class=st.sampled_from(["normal", "scavenger", "interactive"]),
)


class Watched(QueuePlanner):
    """Sum of the allocated fractions of each device."""

    def __init__(self, cluster: ReplayCluster, preset: str) -> None:
        super().__init__(read_policy(preset), cluster.nodes, {"vision": "radiology", "speech": "languages"})
        self.running: dict[int, Job] = {}

    def update_job(self, job: Job, now: datetime) -> None:
        super().update_job(job, now)
        self.running.pop(job.id, None)
        if job.state in ACTIVE_STATES:
            self.running[job.id] = job
        held: defaultdict[str, float] = defaultdict(float)
        for one in self.running.values():
            assert len(one.places) == one.placement.tasks
            for uuid in one.devices:
                held[uuid] += min(1.0, one.resources.gpus)
        assert all(part <= 1 + 1e-9 for part in held.values()), "a device was given twice"


def sorted_workload(jobs: list[TraceJob], cluster: ReplayCluster) -> Workload:
    return build_workload(sorted(jobs, key=lambda job: job.submitted_at), cluster)


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=40, deadline=None)
@given(jobs=st.lists(MADE, min_size=1, max_size=20))
def test_no_device_is_allocated_twice_and_every_job_runs_to_its_end(preset: str, jobs: list[TraceJob]) -> None:
    cluster = parse_cluster("2x4")
    workload = sorted_workload(jobs, cluster)
    spans = replay(workload, Watched(cluster, preset))
    assert {span.job_index for span in spans} == set(range(len(jobs)))
    for place, run_seconds in enumerate(workload.run_seconds):
        done = sum(
            span.ended_seconds - span.started_seconds - span.lost_seconds
            for span in spans
            if span.job_index == place
        )
        assert done == pytest.approx(run_seconds)


@settings(max_examples=example_count(60), deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 40), st.sampled_from([1, 2, 3, 4, 6, 8])),
        min_size=1,
        max_size=20,
    )
)
def test_fifo_starts_jobs_when_a_plain_queue_does(jobs: list[tuple[int, int, int]]) -> None:
    cluster, workload = workload_of("1x8", *jobs)
    live = replay(workload, QueuePlanner(read_policy("fifo"), cluster.nodes, {}))
    assert sorted(live) == sorted(replay(workload, InOrder(cluster.nodes)))


def test_small_jobs_are_backfilled_under_easy_and_not_under_fifo() -> None:
    cluster = parse_cluster("1x8")
    jobs = [TraceJob(0, 100, 100, gpus=6), TraceJob(1, 10, 10, gpus=8), TraceJob(2, 50, 50, gpus=2)]
    starts = {}
    for preset in ("fifo", "easy"):
        spans = replay(build_workload(jobs, cluster), QueuePlanner(read_policy(preset), cluster.nodes, {}))
        starts[preset] = [span.started_seconds for span in sorted(spans)]
    assert starts == {"fifo": [0, 100, 110], "easy": [0, 100, 2]}


def test_a_scavenger_is_preempted_and_starts_again() -> None:
    cluster = parse_cluster("1x8")
    jobs = [TraceJob(0, 100, 100, gpus=8, priority_class="scavenger"), TraceJob(10, 20, 20, gpus=8)]
    spans = replay(build_workload(jobs, cluster), QueuePlanner(read_policy("fairshare"), cluster.nodes, {}))
    on = ("gpu-01",)
    assert spans == [
        AttemptSpan(0, 0, 10, 10, on),
        AttemptSpan(1, 10, 30, 0, on),
        AttemptSpan(0, 30, 130, 0, on),
    ]


HOUR = 3600.0
VISION, SPEECH = (
    [TraceJob(0, HOUR, HOUR, gpus=1, user=f"{project}-{n % 2}", project=project) for n in range(8)]
    for project in ("vision", "speech")
)
DEPARTMENTS = {"vision": "radiology", "speech": "languages"}


def starts_with(jobs: list[TraceJob], **rules: Any) -> dict[str, list[float]]:
    """The hours at which jobs of each project start on 1x8."""
    cluster = parse_cluster("1x8")
    workload = build_workload(jobs, cluster)
    named = replace(read_policy("fairshare"), **rules)
    starts: defaultdict[str, list[float]] = defaultdict(list)
    spans = replay(workload, QueuePlanner(named, cluster.nodes, DEPARTMENTS))
    for span in sorted(spans, key=lambda span: span.started_seconds):
        starts[jobs[span.job_index].project].append(span.started_seconds / HOUR)
    return starts


@pytest.mark.parametrize(
    ("key", "starts"),
    [
        (("project", "vision"), [0, 0, 1, 1, 2, 2, 3, 3]),
        (("department", "radiology"), [0, 0, 1, 1, 2, 2, 3, 3]),
        (("user", "vision-1"), [0, 0, 0, 0, 0, 0, 1, 1]),
    ],
)
def test_no_more_gpus_run_at_once_than_a_quota_allows(key: tuple[str, str], starts: list[float]) -> None:
    found = starts_with(VISION, quotas={key: Quota(running_gpus=2)})
    assert found["vision"] == starts
    assert starts_with(VISION)["vision"] == [0] * 8


def test_a_project_that_has_used_its_gpu_hours_waits_for_the_next_month() -> None:
    found = starts_with(VISION, quotas={("project", "vision"): Quota(gpu_hours_per_month=5)})
    assert found["vision"] == [0] * 5 + [31 * 24] * 3, "the replay begins with January 1970"


def test_jobs_that_a_quota_never_allows_never_start_and_the_replay_ends() -> None:
    quotas = {("project", "vision"): Quota(gpu_hours_per_month=0), ("user", "speech-1"): Quota(running_gpus=0)}
    assert starts_with(VISION + SPEECH, quotas=quotas) == {"speech": [0] * 4}


def reservation(project: str | None, gpus_per_node: int | None = None) -> Reservation:
    """From the second to the fourth hour."""
    first, last = (datetime(1970, 1, 1, hour, tzinfo=UTC) for hour in (1, 4))
    return Reservation("course", ("gpu-01",), first, last, project, gpus_per_node)


def test_reserved_nodes_run_only_jobs_of_their_project() -> None:
    in_turn = [replace(job, submitted_at=half * 1800.0) for half in (1, 2) for job in VISION[:2] + SPEECH[:2]]
    assert starts_with(in_turn) == {"vision": [0, 0, 0.5, 0.5], "speech": [0, 0, 0.5, 0.5]}
    found = starts_with(in_turn, reservations=(reservation("vision"),))
    assert found == {"vision": [0, 0, 0.5, 0.5], "speech": [3.5, 3.5, 3.5, 3.5]}


def test_a_part_of_a_node_can_be_reserved() -> None:
    found = starts_with(SPEECH, reservations=(reservation("vision", gpus_per_node=6),))
    assert found["speech"] == [0] * 8, "all end when the reservation begins"
    later = [replace(job, submitted_at=1800.0) for job in SPEECH]
    both = starts_with([SPEECH[0], *later[1:]], reservations=(reservation("vision", gpus_per_node=6),))
    assert both["speech"] == [0, 0.5, 0.5, 1.5, 1.5, 2.5, 2.5, 3.5]


def test_no_job_runs_during_maintenance() -> None:
    later = [replace(job, submitted_at=1800.0) for job in VISION]
    assert starts_with([SPEECH[0], *later], reservations=(reservation(None),))["vision"] == [4] * 8
