"""Properties of every plan, for random clusters and queues."""

import copy
from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from heliostat.scheduling.plan import plan
from heliostat.scheduling.snapshot import Plan
from unit.scheduling.builders import NOW
from unit.scheduling.plan_rules import find_violations
from unit.scheduling.random_cases import ALL, MANY, Case, a_case, cases, smallest


def plan_of(case: Case) -> Plan:
    return plan(case.board().snapshot(NOW), case.policy, NOW)


@MANY
@given(cases())
def test_no_plan_breaks_a_rule(case: Case) -> None:
    if find_violations(case, plan_of(case)):
        found = smallest(case, lambda smaller: bool(find_violations(smaller, plan_of(smaller))))
        assert find_violations(found, plan_of(found)) == [], found


@MANY
@given(cases(), st.randoms(use_true_random=False))
@example(a_case(Random(17032)), Random(1))  # two overdue jobs have waited equally long
@example(a_case(Random(342)), Random(1))  # two bookings are withdrawn
def test_the_plan_does_not_depend_on_the_order_in_which_jobs_were_added(case, random) -> None:  # type: ignore[no-untyped-def]
    jobs = list(case.jobs)
    random.shuffle(jobs)
    again = plan(case.board(jobs).snapshot(NOW), case.policy, NOW)
    made = plan_of(case)
    assert [(s.job.id, s.places) for s in again.starts] == [(s.job.id, s.places) for s in made.starts]
    assert again == made


@MANY
@given(cases())
def test_a_plan_does_not_change_its_snapshot(case: Case) -> None:
    snapshot = case.board().snapshot(NOW)
    pending, running, usage = snapshot.pending.copy(), snapshot.running.copy(), snapshot.usage_by_leaf.copy()
    before = copy.deepcopy(
        (
            dict(snapshot.held_devices),
            dict(snapshot.shared_device_use),
            dict(snapshot.month_gpu_hours),
            dict(snapshot.jobs),
        )
    )
    free = [
        array.copy()
        for array in (snapshot.node_table.cpus, snapshot.node_table.memory_mib, snapshot.node_table.gpus)
    ]
    first = plan(snapshot, case.policy, NOW)
    assert (
        dict(snapshot.held_devices),
        dict(snapshot.shared_device_use),
        dict(snapshot.month_gpu_hours),
        dict(snapshot.jobs),
    ) == before
    assert np.array_equal(snapshot.pending, pending)
    assert np.array_equal(snapshot.running, running, equal_nan=False) or repr(snapshot.running) == repr(running)
    assert np.array_equal(snapshot.usage_by_leaf, usage)
    for array, kept in zip(
        (snapshot.node_table.cpus, snapshot.node_table.memory_mib, snapshot.node_table.gpus), free, strict=True
    ):
        assert np.array_equal(array, kept)
    assert plan(snapshot, case.policy, NOW) == first


@MANY
@given(
    cases(replace(ALL, nodes=2, running=14, pending=5, parts=False, accounts=False, arrays=False, max_reserved=1))
)
def test_no_plan_of_a_crowded_cluster_preempts_the_wrong_jobs(case: Case) -> None:
    assert find_violations(case, plan_of(case)) == []


@MANY
@given(cases(replace(ALL, nodes=6, running=4, pending=60, reservations=8)))
def test_no_plan_of_a_long_queue_beside_many_reservations_breaks_a_rule(case: Case) -> None:
    assert find_violations(case, plan_of(case)) == []
