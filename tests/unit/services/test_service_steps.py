"""What is done for a service: any world, any order of events; never too many, never fewer than need be."""

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


def counted(seen: list[ReplicaSnapshot]) -> list[ReplicaSnapshot]:
    return [one for one in seen if one.phase is not ReplicaPhase.TERMINAL and not one.is_draining]


def healthy(seen: list[ReplicaSnapshot]) -> int:
    return sum(one.phase is ReplicaPhase.HEALTHY for one in counted(seen))


def after(seen: list[ReplicaSnapshot], todo: ReplicaPlan, generation: int) -> list[ReplicaSnapshot]:
    """The world once the steps are taken; those that were stopped are over."""
    first = max((one.job_id for one in seen), default=0) + 1
    left = [one for one in seen if one.job_id not in todo.close]
    drained = [replace(one, is_draining=True) if one.job_id in todo.drain else one for one in left]
    stopped = [replace(one, phase=ReplicaPhase.TERMINAL) if one.job_id in todo.stop else one for one in drained]
    return stopped + [
        ReplicaSnapshot(first + n, generation, ReplicaPhase.WAITING) for n in range(todo.start_count)
    ]


@given(wanted_ones, worlds())
def test_there_are_never_more_than_wanted_and_the_surge(
    wanted: DesiredReplicas, seen: list[ReplicaSnapshot]
) -> None:
    then = counted(after(seen, plan_replicas(wanted, seen), wanted.generation))
    assert len(then) <= max(wanted.count + wanted.surge, 0)
    assert sum(one.generation == wanted.generation for one in then) <= wanted.count


@given(wanted_ones, worlds())
def test_who_works_goes_only_when_enough_others_work(wanted: DesiredReplicas, seen: list[ReplicaSnapshot]) -> None:
    then = after(seen, plan_replicas(wanted, seen), wanted.generation)
    least = wanted.count - (0 if wanted.surge else 1)
    assert healthy(then) >= min(healthy(seen), least)


@given(wanted_ones, worlds())
def test_only_who_drains_is_stopped_and_only_who_is_over_is_closed(
    wanted: DesiredReplicas, seen: list[ReplicaSnapshot]
) -> None:
    todo, known = plan_replicas(wanted, seen), {one.job_id: one for one in seen}
    assert all(known[number].is_draining and known[number].may_stop for number in todo.stop)
    assert set(todo.close) == {one.job_id for one in seen if one.phase is ReplicaPhase.TERMINAL}
    assert not set(todo.drain) & {one.job_id for one in seen if one.is_draining}
    assert not (todo.start_count and not wanted.may_start)


@given(wanted_ones, worlds(), st.randoms(use_true_random=False))
def test_it_comes_to_rest_with_as_many_as_wanted(
    wanted: DesiredReplicas, seen: list[ReplicaSnapshot], chance: object
) -> None:
    """Whatever it began with: who waits becomes healthy, who drains becomes free, and nothing else happens."""
    wanted = replace(wanted, may_start=True)
    for _ in range(60):
        todo = plan_replicas(wanted, seen)
        seen = after(seen, todo, wanted.generation)
        better = {ReplicaPhase.WAITING: ReplicaPhase.STARTING, ReplicaPhase.STARTING: ReplicaPhase.HEALTHY}
        seen = [
            replace(
                one,
                phase=better.get(one.phase, one.phase) if chance.random() < 0.7 else one.phase,  # type: ignore[attr-defined]
                may_stop=one.is_draining,
            )
            for one in seen
        ]
    assert not plan_replicas(wanted, seen)
    assert [(one.generation, one.phase) for one in seen] == [
        (wanted.generation, ReplicaPhase.HEALTHY)
    ] * wanted.count


def test_an_update_starts_a_new_one_before_an_old_one_goes() -> None:
    old = [ReplicaSnapshot(1, 1, ReplicaPhase.HEALTHY), ReplicaSnapshot(2, 1, ReplicaPhase.HEALTHY)]
    wanted = DesiredReplicas(2, 2)
    assert plan_replicas(wanted, old) == ReplicaPlan(start_count=1)
    assert plan_replicas(wanted, [*old, ReplicaSnapshot(3, 2, ReplicaPhase.STARTING)]) == ReplicaPlan()
    assert plan_replicas(wanted, [*old, ReplicaSnapshot(3, 2, ReplicaPhase.HEALTHY)]) == ReplicaPlan(
        drain=(2,), start_count=1
    )


def test_without_a_surge_an_old_one_gives_way_first() -> None:
    old = [ReplicaSnapshot(1, 1, ReplicaPhase.HEALTHY), ReplicaSnapshot(2, 1, ReplicaPhase.HEALTHY)]
    assert plan_replicas(DesiredReplicas(2, 2, surge=0), old) == ReplicaPlan(drain=(2,), start_count=1)
    waits = [old[0], ReplicaSnapshot(3, 2, ReplicaPhase.WAITING)]
    assert plan_replicas(DesiredReplicas(2, 2, surge=0), waits) == ReplicaPlan()


def test_a_broken_update_leaves_the_old_ones_at_work() -> None:
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


def test_those_that_fail_together_count_once() -> None:
    failed = ReplicaFailure(NOW, NOW - timedelta(minutes=1), None, "exit code 1")
    first = replace(service(), **service_changes_after_failure(service(), failed))
    assert (first.failures, first.retry_at) == (1, NOW + timedelta(seconds=1))
    assert service_changes_after_failure(first, replace(failed, failed_at=NOW + timedelta(seconds=5))) == {
        "problem": "exit code 1"
    }
    later = ReplicaFailure(NOW + timedelta(seconds=9), NOW + timedelta(seconds=2), None, "exit code 1")
    assert service_changes_after_failure(first, later)["failures"] == 2


def test_one_that_worked_for_a_while_begins_to_count_anew() -> None:
    known = service(failures=7, failed_at=NOW - timedelta(hours=1))
    steady = ReplicaFailure(NOW, NOW - timedelta(minutes=9), NOW - timedelta(minutes=8), "killed")
    assert service_changes_after_failure(known, steady)["failures"] == 1
    hasty = ReplicaFailure(NOW, NOW - timedelta(minutes=1), NOW - timedelta(seconds=20), "killed")
    assert service_changes_after_failure(known, hasty)["failures"] == 8
