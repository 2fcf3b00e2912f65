"""Replica plans: properties for any state and any order of events."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import JobRequest, JobSpec
from heliostat.models.services import Service, ServiceState, ServiceVisibility
from heliostat.services.web_services.replica_plan import (
    DesiredReplicas,
    ReplicaFailure,
    ReplicaPhase,
    ReplicaPlan,
    ReplicaSnapshot,
    backoff_seconds,
    plan_replicas,
    service_changes_after_failure,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
wanted_ones = st.builds(DesiredReplicas, st.integers(0, 5), st.integers(1, 3), st.integers(0, 2), st.booleans())


@st.composite
def worlds(draw: st.DrawFn) -> list[ReplicaSnapshot]:
    phases = st.sampled_from(list(ReplicaPhase))
    kinds = draw(st.lists(st.tuples(st.integers(1, 3), phases, st.booleans(), st.booleans()), max_size=10))
    return [
        ReplicaSnapshot(number, generation, phase, draining, draining and free)
        for number, (generation, phase, draining, free) in enumerate(kinds, 1)
    ]


def counted(replicas: list[ReplicaSnapshot]) -> list[ReplicaSnapshot]:
    return [each for each in replicas if each.phase is not ReplicaPhase.TERMINAL and not each.is_draining]


def healthy(replicas: list[ReplicaSnapshot]) -> int:
    return sum(each.phase is ReplicaPhase.HEALTHY for each in counted(replicas))


def after(replicas: list[ReplicaSnapshot], plan: ReplicaPlan, generation: int) -> list[ReplicaSnapshot]:
    """The replicas after the plan was applied; stopped ones have ended."""
    first = max((each.job_id for each in replicas), default=0) + 1
    remaining = [each for each in replicas if each.job_id not in plan.close]
    drained = [replace(each, is_draining=True) if each.job_id in plan.drain else each for each in remaining]
    stopped = [
        replace(each, phase=ReplicaPhase.TERMINAL) if each.job_id in plan.stop else each for each in drained
    ]
    return stopped + [
        ReplicaSnapshot(first + n, generation, ReplicaPhase.WAITING) for n in range(plan.start_count)
    ]


@given(wanted_ones, worlds())
def test_there_are_never_more_replicas_than_desired_plus_surge(
    desired: DesiredReplicas, replicas: list[ReplicaSnapshot]
) -> None:
    then = counted(after(replicas, plan_replicas(desired, replicas), desired.generation))
    assert len(then) <= max(desired.count + desired.surge, 0)
    assert sum(each.generation == desired.generation for each in then) <= desired.count


@given(wanted_ones, worlds())
def test_a_healthy_replica_is_drained_only_if_enough_others_are_healthy(
    desired: DesiredReplicas, replicas: list[ReplicaSnapshot]
) -> None:
    then = after(replicas, plan_replicas(desired, replicas), desired.generation)
    minimum = desired.count - (0 if desired.surge else 1)
    assert healthy(then) >= min(healthy(replicas), minimum)


@given(wanted_ones, worlds())
def test_only_draining_replicas_are_stopped_and_only_ended_ones_closed(
    desired: DesiredReplicas, replicas: list[ReplicaSnapshot]
) -> None:
    plan, known = plan_replicas(desired, replicas), {each.job_id: each for each in replicas}
    assert all(known[number].is_draining and known[number].may_stop for number in plan.stop)
    assert set(plan.close) == {each.job_id for each in replicas if each.phase is ReplicaPhase.TERMINAL}
    assert not set(plan.drain) & {each.job_id for each in replicas if each.is_draining}
    assert not (plan.start_count and not desired.may_start)


@given(wanted_ones, worlds(), st.randoms(use_true_random=False))
def test_it_converges_to_the_desired_number(
    desired: DesiredReplicas, replicas: list[ReplicaSnapshot], chance: object
) -> None:
    """Whatever it began with: who waits becomes healthy, who drains becomes free, and nothing else happens."""
    desired = replace(desired, may_start=True)
    for _ in range(60):
        plan = plan_replicas(desired, replicas)
        replicas = after(replicas, plan, desired.generation)
        better = {ReplicaPhase.WAITING: ReplicaPhase.STARTING, ReplicaPhase.STARTING: ReplicaPhase.HEALTHY}
        replicas = [
            replace(
                each,
                phase=better.get(each.phase, each.phase) if chance.random() < 0.7 else each.phase,  # type: ignore[attr-defined]
                may_stop=each.is_draining,
            )
            for each in replicas
        ]
    assert not plan_replicas(desired, replicas)
    assert [(each.generation, each.phase) for each in replicas] == [
        (desired.generation, ReplicaPhase.HEALTHY)
    ] * desired.count


def test_an_update_starts_a_new_replica_before_draining_an_old_one() -> None:
    old = [ReplicaSnapshot(1, 1, ReplicaPhase.HEALTHY), ReplicaSnapshot(2, 1, ReplicaPhase.HEALTHY)]
    desired = DesiredReplicas(2, 2)
    assert plan_replicas(desired, old) == ReplicaPlan(start_count=1)
    assert plan_replicas(desired, [*old, ReplicaSnapshot(3, 2, ReplicaPhase.STARTING)]) == ReplicaPlan()
    assert plan_replicas(desired, [*old, ReplicaSnapshot(3, 2, ReplicaPhase.HEALTHY)]) == ReplicaPlan(
        drain=(2,), start_count=1
    )


def test_without_a_surge_an_old_replica_is_drained_first() -> None:
    old = [ReplicaSnapshot(1, 1, ReplicaPhase.HEALTHY), ReplicaSnapshot(2, 1, ReplicaPhase.HEALTHY)]
    assert plan_replicas(DesiredReplicas(2, 2, surge=0), old) == ReplicaPlan(drain=(2,), start_count=1)
    waits = [old[0], ReplicaSnapshot(3, 2, ReplicaPhase.WAITING)]
    assert plan_replicas(DesiredReplicas(2, 2, surge=0), waits) == ReplicaPlan()


def test_a_broken_update_keeps_the_old_replicas() -> None:
    old = [ReplicaSnapshot(1, 1, ReplicaPhase.HEALTHY), ReplicaSnapshot(2, 1, ReplicaPhase.HEALTHY)]
    broken = ReplicaSnapshot(3, 2, ReplicaPhase.TERMINAL)
    assert plan_replicas(DesiredReplicas(2, 2, may_start=False), [*old, broken]) == ReplicaPlan(close=(3,))


def service(**fields: object) -> Service:
    request = JobRequest(JobSpec(("true",)))
    made = Service(1, "a", "ann", "p", ServiceState.ACTIVE, request, 1, ServiceVisibility.PRIVATE, "secret", NOW)
    return replace(made, **fields)  # type: ignore[arg-type]


@given(st.integers(1, 10_000))
def test_the_back_off_grows_and_is_capped(failures: int) -> None:
    assert 1 <= backoff_seconds(failures) <= backoff_seconds(failures + 1) <= 300


def test_simultaneous_failures_count_once() -> None:
    failed = ReplicaFailure(NOW, NOW - timedelta(minutes=1), None, "exit code 1")
    first = replace(service(), **service_changes_after_failure(service(), failed))
    assert (first.failures, first.retry_at) == (1, NOW + timedelta(seconds=1))
    assert service_changes_after_failure(first, replace(failed, failed_at=NOW + timedelta(seconds=5))) == {
        "problem": "exit code 1"
    }
    later = ReplicaFailure(NOW + timedelta(seconds=9), NOW + timedelta(seconds=2), None, "exit code 1")
    assert service_changes_after_failure(first, later)["failures"] == 2


def test_a_stable_replica_resets_the_failure_count() -> None:
    known = service(failures=7, failed_at=NOW - timedelta(hours=1))
    steady = ReplicaFailure(NOW, NOW - timedelta(minutes=9), NOW - timedelta(minutes=8), "killed")
    assert service_changes_after_failure(known, steady)["failures"] == 1
    hasty = ReplicaFailure(NOW, NOW - timedelta(minutes=1), NOW - timedelta(seconds=20), "killed")
    assert service_changes_after_failure(known, hasty)["failures"] == 8
