"""The replay follows the trace and the decisions of the planner."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliostat.simulation.replay import AttemptSpan, replay
from heliostat.simulation.workload import Workload
from support.hypothesis_examples import example_count
from unit.simulation.reference_planners import Decided, Impatient, InOrder, workload_of

JOBS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 40), st.sampled_from([0, 1, 2, 3, 4, 6, 8])),
    min_size=1,
    max_size=25,
)


ON = ("gpu-01",)


def brute_force(workload: Workload, gpus: int) -> dict[int, float]:
    """Start of each job on one node without backfill, second by second. Whole seconds only."""
    starts: dict[int, float] = {}
    for second in range(10_000):
        while len(starts) < len(workload.jobs):
            place = len(starts)
            held = sum(
                workload.jobs[other].resources.gpus
                for other, began in starts.items()
                if began + workload.run_seconds[other] > second
            )
            fits = held + workload.jobs[place].resources.gpus <= gpus
            if workload.submitted_seconds[place] > second or not fits:
                break
            starts[place] = float(second)
    return starts


@settings(max_examples=example_count(100), deadline=None)
@given(jobs=JOBS)
def test_fifo_matches_a_second_by_second_simulation(
    jobs: list[tuple[int, int, int]],
) -> None:
    cluster, workload = workload_of("1x8", *jobs)
    spans = replay(workload, InOrder(cluster.nodes))
    assert {span.job_index: span.started_seconds for span in spans} == brute_force(workload, 8)


@settings(max_examples=example_count(100), deadline=None)
@given(jobs=JOBS)
def test_no_job_is_lost_and_each_runs_as_long_as_it_did(jobs: list[tuple[int, int, int]]) -> None:
    cluster, workload = workload_of("2x4", *jobs)
    spans = replay(workload, InOrder(cluster.nodes))  # which checks that no device is given twice
    assert sorted(span.job_index for span in spans) == list(range(len(jobs)))
    for span in spans:
        assert span.ended_seconds - span.started_seconds == workload.run_seconds[span.job_index]
        assert span.started_seconds >= workload.submitted_seconds[span.job_index]


@settings(max_examples=50, deadline=None)
@given(jobs=JOBS, seconds=st.integers(1, 20), every=st.sampled_from([None, 1.0, 3.0]))
def test_a_preempted_job_completes_its_full_work(
    jobs: list[tuple[int, int, int]], seconds: int, every: float | None
) -> None:
    cluster, workload = workload_of("2x4", *jobs)
    spans = replay(workload, Impatient(cluster.nodes, seconds), checkpoint_seconds=every)
    for place, run_seconds in enumerate(workload.run_seconds):
        mine = [span for span in spans if span.job_index == place]
        assert sum(
            span.ended_seconds - span.started_seconds - span.lost_seconds for span in mine
        ) == pytest.approx(run_seconds)


def test_a_preempted_job_starts_over_without_checkpoints() -> None:
    cluster, workload = workload_of("1x8", (0, 100, 8))
    spans = replay(workload, Impatient(cluster.nodes, 30))
    assert spans == [AttemptSpan(0, 0.0, 30.0, 30.0, ON), AttemptSpan(0, 30.0, 130.0, 0.0, ON)]


def test_a_preempted_job_continues_from_its_last_checkpoint() -> None:
    cluster, workload = workload_of("1x8", (0, 100, 8))
    spans = replay(workload, Impatient(cluster.nodes, 35), checkpoint_seconds=10)
    assert spans == [AttemptSpan(0, 0.0, 35.0, 5.0, ON), AttemptSpan(0, 35.0, 105.0, 0.0, ON)]


def test_a_gang_waits_for_whole_nodes() -> None:
    cluster, workload = workload_of("2x8", (0, 10, 1), (1, 5, 16))
    spans = replay(workload, InOrder(cluster.nodes))
    assert [span.started_seconds for span in spans] == [0.0, 10.0]
    assert [span.nodes for span in spans] == [("gpu-01",), ("gpu-01", "gpu-02")]


def test_events_at_the_same_time_lead_to_one_decision() -> None:
    class Counting(InOrder):
        asked = 0

        def make_decision(self, now: object) -> Decided:
            self.asked += 1
            return Decided(self.in_order())

    cluster, workload = workload_of("1x8", *[(0, 10, 1)] * 8, *[(10, 10, 1)] * 8)
    planner = Counting(cluster.nodes)
    assert len(replay(workload, planner)) == 16
    assert planner.asked == 3


def test_a_job_the_planner_never_starts_has_no_attempt() -> None:
    class Lazy(InOrder):
        def make_decision(self, now: object) -> Decided:
            return Decided()

    cluster, workload = workload_of("1x8", (0, 10, 1))
    assert replay(workload, Lazy(cluster.nodes)) == []


def test_progress_is_reported() -> None:
    told: list[int] = []
    cluster, workload = workload_of("1x8", *[(n, 1, 1) for n in range(450)])
    replay(workload, InOrder(cluster.nodes), report_progress=told.append)
    assert told == [200, 400, 450]
