"""Whatever the cluster looks like, a plan hands out nothing twice and nothing that is not there."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from heliostat.models import Device, Job, Node, NodeState, Resources
from heliostat.scheduling.plan import plan, queue_key
from heliostat.scheduling.snapshot import Allocation, Plan, Policy, Snapshot
from unit.scheduling.made_up import NOW, a_job, a_node

TYPES = ("A100", "T4")


def planned(
    *pending: Job, nodes: tuple[Node, ...] = (), held: tuple[Allocation, ...] = (), reasons: int = 1000
) -> Plan:
    ordered = tuple(sorted(pending, key=queue_key))
    return plan(Snapshot(nodes or (a_node(),), held, ordered), Policy(reasons), NOW)


def started(made: Plan) -> list[int]:
    return [start.job.id for start in made.starts]


requests = st.builds(
    Resources,
    cpus=st.integers(1, 6),
    memory_mib=st.integers(16, 600),
    gpus=st.integers(0, 3),
    gpu_type=st.sampled_from([None, "A100", "a100", "T4", "nonsense"]),
)


@st.composite
def nodes_of_any_kind(draw: st.DrawFn, name: str) -> Node:
    devices = tuple(
        Device(
            f"{name}-{index}",
            index,
            draw(st.sampled_from(TYPES)),
            "GPU",
            16000,
            problem=draw(st.sampled_from([None, None, None, "broken"])),
            used_outside=draw(st.sampled_from([None, None, None, "in use"])),
        )
        for index in range(draw(st.integers(0, 4)))
    )
    state = draw(st.sampled_from([NodeState.UP, NodeState.UP, NodeState.DRAINED, NodeState.DOWN]))
    return Node(name, draw(st.integers(1, 8)), draw(st.integers(100, 1000)), devices, state)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    nodes = tuple(draw(nodes_of_any_kind(name)) for name in "abc"[: draw(st.integers(0, 3))])
    limits = {array_id: draw(st.sampled_from([None, 1, 2])) for array_id in (1, 2)}
    jobs = []
    for number in range(1, draw(st.integers(0, 25)) + 1):
        array_id = draw(st.sampled_from([None, None, 1, 2]))
        jobs.append(
            a_job(
                number,
                draw(requests),
                priority=draw(st.integers(-1, 1)),
                submitted_at=NOW - timedelta(seconds=draw(st.integers(0, 3))),
                array_id=array_id,
                array_limit=limits.get(array_id) if array_id else None,
            )
        )
    first = plan(Snapshot(nodes, (), tuple(sorted(jobs[::2], key=queue_key))), Policy(), NOW)
    running = {start.job.id for start in first.starts}
    held = tuple(Allocation(f"{s.job.id}.1", s.job, s.node, s.devices) for s in first.starts)
    pending = tuple(sorted((job for job in jobs if job.id not in running), key=queue_key))
    return Snapshot(nodes, held, pending)


@settings(max_examples=200, deadline=None)
@given(snapshots())
def test_a_plan_never_hands_out_more_than_there_is(snapshot: Snapshot) -> None:
    made = plan(snapshot, Policy(), NOW)
    nodes = {node.name: node for node in snapshot.nodes}
    taken = [(held.node, held.job, held.devices) for held in snapshot.allocations]
    taken += [(start.node, start.job, start.devices) for start in made.starts]
    for name, node in nodes.items():
        here = [(job, devices) for where, job, devices in taken if where == name]
        assert sum(job.resources.cpus for job, _ in here) <= node.cpus
        assert sum(job.resources.memory_mib for job, _ in here) <= node.memory_mib
    handed = Counter(uuid for _, _, devices in taken for uuid in devices)
    assert all(times == 1 for times in handed.values())


@settings(max_examples=200, deadline=None)
@given(snapshots())
def test_what_is_handed_out_is_usable_and_what_was_asked_for(snapshot: Snapshot) -> None:
    nodes = {node.name: node for node in snapshot.nodes}
    for start in plan(snapshot, Policy(), NOW).starts:
        node, wanted = nodes[start.node], start.job.resources
        assert node.state is NodeState.UP
        devices = {device.uuid: device for device in node.devices}
        assert len(start.devices) == wanted.gpus
        for uuid in start.devices:
            assert devices[uuid].may_be_used
            assert wanted.gpu_type is None or devices[uuid].type.lower() == wanted.gpu_type.lower()


@settings(max_examples=200, deadline=None)
@given(snapshots())
def test_no_array_runs_more_at_once_than_its_limit(snapshot: Snapshot) -> None:
    made = plan(snapshot, Policy(), NOW)
    jobs = [held.job for held in snapshot.allocations] + [start.job for start in made.starts]
    running = Counter(job.array_id for job in jobs)
    assert all(job.array_limit is None or running[job.array_id] <= job.array_limit for job in jobs)


@settings(max_examples=100, deadline=None)
@given(snapshots())
def test_each_job_starts_once_or_waits_and_the_first_to_wait_has_a_reason(snapshot: Snapshot) -> None:
    made = plan(snapshot, Policy(), NOW)
    ids = [start.job.id for start in made.starts]
    assert len(set(ids)) == len(ids)
    assert set(ids) <= {job.id for job in snapshot.pending}
    assert not set(ids) & made.reasons.keys()
    waiting = [job.id for job in snapshot.pending if job.id not in ids]
    assert not waiting or made.reasons[waiting[0]]


@settings(max_examples=200, deadline=None)
@given(snapshots())
def test_of_jobs_that_want_the_same_none_overtakes_another(snapshot: Snapshot) -> None:
    alone = tuple(replace(job, array_id=None, array_limit=None) for job in snapshot.pending)
    starting = set(started(plan(replace(snapshot, pending=alone), Policy(), NOW)))
    for wanted in {job.resources for job in alone}:
        same = [job.id in starting for job in alone if job.resources == wanted]
        assert same == sorted(same, reverse=True)


@settings(max_examples=200, deadline=None)
@given(snapshots())
def test_whoever_waits_though_first_in_the_queue_really_has_no_room(snapshot: Snapshot) -> None:
    made = plan(snapshot, Policy(), NOW)
    if snapshot.pending and snapshot.pending[0].id not in started(made):
        only = replace(snapshot, pending=snapshot.pending[:1])
        assert plan(only, Policy(), NOW).starts == ()


@settings(max_examples=100, deadline=None)
@given(snapshots())
def test_the_same_snapshot_gives_the_same_plan_and_stays_as_it_is(snapshot: Snapshot) -> None:
    copy = replace(snapshot)
    assert plan(snapshot, Policy(), NOW) == plan(copy, Policy(), NOW + timedelta(days=1))
    assert snapshot == copy


@settings(max_examples=100, deadline=None)
@given(snapshots())
def test_how_many_reasons_are_worked_out_does_not_change_what_starts(snapshot: Snapshot) -> None:
    assert plan(snapshot, Policy(reasons=1), NOW).starts == plan(snapshot, Policy(), NOW).starts


def test_the_order_is_priority_then_number_whatever_the_clock_said() -> None:
    jobs = [
        a_job(1, priority=-1),
        a_job(2),
        a_job(3),
        a_job(4, submitted_at=NOW - timedelta(seconds=1)),
        a_job(5, priority=1, submitted_at=NOW + timedelta(seconds=1)),
    ]
    assert started(planned(*jobs)) == [5, 2, 3, 4, 1]


def test_a_long_array_that_runs_one_at_a_time_does_not_keep_others_from_the_free_rest() -> None:
    array = [a_job(number, array_id=1, array_limit=1) for number in range(1, 50)]
    assert started(planned(*array, a_job(100), reasons=5)) == [1, 100]


def test_jobs_that_wait_for_gpus_do_not_keep_others_from_the_cpus() -> None:
    waiting = [a_job(number, Resources(1, 100, gpus=1)) for number in range(1, 50)]
    made = planned(*waiting, a_job(100), nodes=(a_node(gpus=1),), reasons=5)
    assert started(made) == [1, 100]
    assert len(made.reasons) == 5


def test_a_full_machine_still_says_what_the_first_in_the_queue_waits_for() -> None:
    busy = Allocation("9.1", a_job(9, Resources(8, 500)), "a")
    made = planned(a_job(1), a_job(2), held=(busy,))
    assert made.starts == ()
    assert made.reasons[1] == "needs 1 cpu, 100 MiB; 0 cpus, 500 MiB are free on a"


def test_reasons_name_the_cause() -> None:
    drained = a_node(state=NodeState.DRAINED, reason="new fans")
    assert "drained" in planned(a_job(1), nodes=(drained,)).reasons[1]
    assert planned(a_job(1, Resources(99, 1))).reasons[1] == "no node has 99 cpus, 1 MiB"
    assert plan(Snapshot((), (), (a_job(1),)), Policy(), NOW).reasons == {1: "no node is up"}


def test_an_allocation_on_a_node_that_is_gone_harms_nothing() -> None:
    ghost = Allocation("9.1", a_job(9, Resources(8, 500)), "gone", ("gone-0",))
    assert started(planned(a_job(1), held=(ghost,))) == [1]


def test_a_node_that_shrank_below_what_runs_on_it_takes_nothing_new() -> None:
    held = Allocation("9.1", a_job(9, Resources(20, 5000)), "a")
    assert started(planned(a_job(1), held=(held,))) == []
