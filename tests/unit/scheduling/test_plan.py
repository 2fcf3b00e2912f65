"""Plans: which jobs start on which nodes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from heliostat.models import (
    Department,
    JobState,
    Node,
    NodeState,
    PlacementRequest,
    Project,
    Quota,
    Reservation,
    Resources,
    TaskLayout,
)
from heliostat.scheduling.policy import POLICY_PRESETS, SchedulingPolicy
from heliostat.scheduling.share_accounts import ShareAccounts
from unit.scheduling.builders import (
    FIFO_BACKFILL,
    NOW,
    a_job,
    a_node,
    a_plan,
    a_queue_state,
    a_running_job,
    started,
)

HOUR = 3600


def gpus(count: float, **fields: object) -> Resources:
    return replace(Resources(1, 10, count), **fields)  # type: ignore[arg-type]


def devices(node: str, *numbers: int) -> tuple[str, ...]:
    return tuple(f"{node}-{number}" for number in numbers)


def test_a_job_that_fits_starts_with_its_own_devices() -> None:
    made = a_plan(a_queue_state((a_node("a", gpus=4),), [a_job(1, gpus(2)), a_job(2, gpus(2))]))
    assert started(made) == {1: ("a",), 2: ("a",)}
    assert {uuid for start in made.starts for uuid in start.devices} == set(devices("a", 0, 1, 2, 3))


def test_nodes_with_few_free_devices_are_preferred_so_that_whole_nodes_stay_free() -> None:
    nodes = (a_node("a", gpus=4), a_node("b", gpus=4))
    running = a_running_job(9, "b", gpus(2), devices=devices("b", 0, 1))
    assert started(a_plan(a_queue_state(nodes, [running, a_job(1, gpus(2))]))) == {1: ("b",)}


def test_jobs_without_gpus_prefer_nodes_without_gpus() -> None:
    nodes = (a_node("a", gpus=4), a_node("b"))
    assert started(a_plan(a_queue_state(nodes, [a_job(1)]))) == {1: ("b",)}


def test_small_jobs_are_backfilled_only_if_they_end_before_the_booking() -> None:
    running = a_running_job(9, "a", gpus(3), devices=devices("a", 0, 1, 2), time_limit_seconds=2 * HOUR)
    head = a_job(1, gpus(4), time_limit_seconds=HOUR)
    short = a_job(2, gpus(1), time_limit_seconds=HOUR)
    too_long = a_job(3, gpus(1), time_limit_seconds=3 * HOUR)
    node = a_node("a", gpus=4)
    assert started(a_plan(a_queue_state((node,), [running, head, too_long], FIFO_BACKFILL))) == {}
    made = a_plan(a_queue_state((node,), [running, head, too_long, short], FIFO_BACKFILL))
    assert started(made) == {2: ("a",)}
    assert [(head.job_id, head.starts_at) for head in made.booked_starts] == [(1, NOW + timedelta(hours=2))]


def test_a_long_job_may_use_what_the_booking_does_not_need() -> None:
    nodes = (a_node("a", gpus=4), a_node("b", gpus=4))
    running = [
        a_running_job(8, "a", gpus(4), devices=devices("a", 0, 1, 2, 3), time_limit_seconds=2 * HOUR),
        a_running_job(9, "b", gpus(3), devices=devices("b", 0, 1, 2), time_limit_seconds=9 * HOUR),
    ]
    head, long = a_job(1, gpus(4), time_limit_seconds=HOUR), a_job(2, gpus(1), time_limit_seconds=99 * HOUR)
    assert started(a_plan(a_queue_state(nodes, [*running, head, long], FIFO_BACKFILL))) == {2: ("b",)}


def test_without_backfill_no_job_overtakes_the_first() -> None:
    running = a_running_job(9, "a", gpus(3), devices=devices("a", 0, 1, 2), time_limit_seconds=2 * HOUR)
    jobs = [running, a_job(1, gpus(4)), a_job(2, gpus(1), time_limit_seconds=60)]
    assert started(a_plan(a_queue_state((a_node("a", gpus=4),), jobs, POLICY_PRESETS["fifo"]))) == {}


def test_an_infeasible_job_does_not_block_others() -> None:
    jobs = [a_job(1, gpus(64)), a_job(2, gpus(1))]
    assert started(a_plan(a_queue_state((a_node("a", gpus=4),), jobs, POLICY_PRESETS["fifo"]))) == {2: ("a",)}


def test_a_gang_starts_whole_or_not_at_all() -> None:
    nodes = (a_node("a", gpus=4), a_node("b", gpus=4))
    gang = a_job(1, gpus(4), placement=PlacementRequest(tasks=2))
    made = a_plan(a_queue_state(nodes, [gang]))
    assert started(made) == {1: ("a", "b")}
    assert [len(place.devices) for place in made.starts[0].places] == [4, 4]
    running = a_running_job(9, "b", gpus(1), devices=devices("b", 0))
    assert started(a_plan(a_queue_state(nodes, [gang, running]))) == {}


def test_tasks_are_packed_or_spread_as_requested() -> None:
    nodes = (a_node("a", gpus=4), a_node("b", gpus=4))
    assert started(a_plan(a_queue_state(nodes, [a_job(1, gpus(1), placement=PlacementRequest(tasks=2))]))) == {
        1: ("a", "a")
    }
    apart = PlacementRequest(tasks=2, layout=TaskLayout.SPREAD)
    assert set(started(a_plan(a_queue_state(nodes, [a_job(1, gpus(1), placement=apart)])))[1]) == {"a", "b"}


def test_an_exclusive_job_waits_for_an_empty_node() -> None:
    nodes = (a_node("a"), a_node("b"))
    alone = a_job(1, placement=PlacementRequest(exclusive=True))
    made = a_plan(a_queue_state(nodes, [a_running_job(9, "a"), alone, a_job(2)]))
    assert started(made) == {1: ("b",), 2: ("a",)}
    on_its_own = a_running_job(1, "b", placement=PlacementRequest(exclusive=True))
    assert started(a_plan(a_queue_state(nodes, [on_its_own, *(a_job(n) for n in range(2, 9))])))[2] == ("a",)


def test_labels_data_classes_and_device_memory_are_respected() -> None:
    nodes = (
        a_node("a", gpus=1),
        a_node("b", gpus=1, labels={"disk": "ssd"}),
        a_node("c", gpus=1, data_class=3, min_data_class=2),
    )
    accounts = ShareAccounts({}, {"secret": Project("secret", "default", data_class=2)})
    jobs = [
        a_job(1, placement=PlacementRequest(labels=("disk=ssd",))),
        a_job(2, placement=PlacementRequest(labels=("disk=tape",))),
        a_job(3, project="secret"),
        a_job(4, gpus(1, gpu_memory_mib=90_000)),
    ]
    assert started(a_plan(a_queue_state(nodes, jobs, accounts=accounts))) == {1: ("b",), 3: ("c",)}


def test_fractions_of_a_gpu_share_a_device_only_where_that_is_allowed() -> None:
    jobs = [a_job(number, gpus(0.5)) for number in (1, 2, 3)]
    made = a_plan(a_queue_state((a_node("a", gpus=2), a_node("b", gpus=2, splits_devices=True)), jobs))
    assert set(started(made).values()) == {("b",)}
    assert [start.devices for start in made.starts] == [("b-0",), ("b-0",), ("b-1",)]
    running = a_running_job(9, "b", gpus(0.5), devices=("b-1",))
    made = a_plan(
        a_queue_state(
            (a_node("b", gpus=2, splits_devices=True),), [running, a_job(1, gpus(0.5)), a_job(2, gpus(1))]
        )
    )
    assert {start.job.id: start.devices for start in made.starts} == {1: ("b-1",), 2: ("b-0",)}


def test_nothing_starts_on_a_node_that_is_drained_or_on_a_faulty_device() -> None:
    node = a_node("a", gpus=2)
    faulty = replace(node, devices=(replace(node.devices[0], problem="ECC"), node.devices[1]))
    made = a_plan(a_queue_state((faulty,), [a_job(1, gpus(1)), a_job(2, gpus(1))]))
    assert [start.devices for start in made.starts] == [("a-1",)]
    assert a_plan(a_queue_state((replace(node, state=NodeState.DRAINED),), [a_job(1)])).starts == ()


def test_quotas_hold_for_user_project_and_department() -> None:
    node = a_node("a", gpus=8)
    for accounts in (
        ShareAccounts(user_quotas={"ann": Quota(running_gpus=3)}),
        ShareAccounts(projects={"default": Project("default", "d", quota=Quota(running_gpus=3))}),
        ShareAccounts({"d": Department("d", quota=Quota(running_gpus=3))}, {"default": Project("default", "d")}),
    ):
        running = a_running_job(9, "a", gpus(1), devices=("a-7",))
        jobs = [running, a_job(1, gpus(3)), a_job(2, gpus(2)), a_job(3, gpus(1)), a_job(4)]
        assert set(started(a_plan(a_queue_state((node,), jobs, accounts=accounts)))) in ({2, 4}, {3, 4})


def test_a_reservation_is_for_its_project_and_other_jobs_end_before_it() -> None:
    soon = Reservation("course", ("a",), NOW + timedelta(hours=2), NOW + timedelta(hours=4), project="course")
    jobs = [
        a_job(1, gpus(1), time_limit_seconds=3 * HOUR),
        a_job(2, gpus(1), time_limit_seconds=HOUR),
        a_job(3, gpus(1), time_limit_seconds=3 * HOUR, project="course"),
    ]
    node = a_node("a", gpus=4)
    made = a_plan(a_queue_state((node,), jobs, reservations=(soon,)))
    assert set(started(made)) == {2, 3}
    assert made.wake_at == soon.starts_at
    now = replace(soon, starts_at=NOW - timedelta(hours=1))
    assert set(started(a_plan(a_queue_state((node,), jobs, reservations=(now,))))) == {3}
    maintenance = replace(now, project=None)
    assert started(a_plan(a_queue_state((node,), jobs, reservations=(maintenance,)))) == {}


def test_a_reservation_of_some_gpus_leaves_the_others() -> None:
    held = Reservation(
        "course", ("a",), NOW - timedelta(hours=1), NOW + timedelta(hours=4), project="course", gpus_per_node=3
    )
    jobs = [a_job(number, gpus(1)) for number in (1, 2)] + [
        a_job(3, gpus(3), project="course", time_limit_seconds=HOUR)
    ]
    assert set(started(a_plan(a_queue_state((a_node("a", gpus=4),), jobs, reservations=(held,))))) == {1, 3}


def test_an_array_runs_no_more_at_once_than_its_limit() -> None:
    jobs = [a_job(number, array_id=1, array_index=number, array_limit=2) for number in range(1, 6)]
    assert set(started(a_plan(a_queue_state((a_node("a"),), [*jobs, a_job(9)])))) == {1, 2, 9}


def test_a_user_with_300_jobs_does_not_delay_a_user_with_10() -> None:
    many = [a_job(n, gpus(1), user="ann", project="ours", time_limit_seconds=HOUR) for n in range(1, 301)]
    few = [a_job(n, gpus(1), user="bob", project="theirs", time_limit_seconds=HOUR) for n in range(301, 311)]
    made = a_plan(a_queue_state((a_node("a", cpus=64, memory_mib=10**6, gpus=20),), many + few))
    assert sum(start.job.user == "bob" for start in made.starts) == 10


def test_a_higher_class_goes_first_and_the_scavenger_last() -> None:
    classes = ["scavenger", "normal", "interactive", "urgent"]
    jobs = [a_job(number, gpus(1), priority_class=name) for number, name in enumerate(classes, 1)]
    for room in range(1, 5):
        assert sorted(started(a_plan(a_queue_state((a_node("a", gpus=room),), jobs)))) == list(range(5 - room, 5))


def test_the_preemptible_job_with_the_least_lost_work_is_preempted_for_a_higher_class() -> None:
    def victim(number: int, node: str, minutes: float, **fields: object):  # type: ignore[no-untyped-def]
        job = a_running_job(number, node, gpus(4), devices=devices(node, 0, 1, 2, 3), time_limit_seconds=99 * HOUR)
        at = NOW - timedelta(minutes=minutes)
        return replace(job, preemptible=True, started_at=at, **fields)

    nodes: tuple[Node, ...] = (a_node("a", gpus=4), a_node("b", gpus=4))
    old = victim(8, "a", 600)
    young = victim(9, "b", 30)
    waiting = a_job(1, gpus(2), priority_class="interactive", time_limit_seconds=HOUR)
    assert [stop.job.id for stop in a_plan(a_queue_state(nodes, [old, young, waiting])).stops] == [9]
    saved = replace(old, checkpointed_at=NOW - timedelta(minutes=1))
    made = a_plan(a_queue_state(nodes, [saved, young, waiting]))
    assert [(stop.job.id, stop.kind) for stop in made.stops] == [(8, "preempt")]
    assert a_plan(a_queue_state(nodes, [saved, young, replace(waiting, priority_class="normal")])).stops == ()
    stopping = replace(saved, stop_requested="preempt")
    assert a_plan(a_queue_state(nodes, [stopping, young, waiting])).stops == ()
    assert a_plan(a_queue_state(nodes, [saved, young, waiting], SchedulingPolicy(preempts=False))).stops == ()


def test_scavengers_are_preempted_for_any_other_class() -> None:
    scavenger = a_running_job(
        9, "a", gpus(4), devices=devices("a", 0, 1, 2, 3), priority_class="scavenger", time_limit_seconds=99 * HOUR
    )
    assert [
        stop.job.id for stop in a_plan(a_queue_state((a_node("a", gpus=4),), [scavenger, a_job(1, gpus(1))])).stops
    ] == [9]


def test_overtime_lasts_while_no_job_needs_the_resources() -> None:
    over = a_running_job(9, "a", gpus(1), devices=("a-0",), time_limit_seconds=60, overtime=True)
    nodes = (a_node("a", gpus=1), a_node("b", gpus=1))
    later = NOW + timedelta(hours=1)
    elsewhere = a_running_job(8, "b", gpus(1), devices=("b-0",), time_limit_seconds=99 * HOUR)
    assert a_plan(a_queue_state(nodes, [over, a_job(1, gpus(1))]), later).stops == ()
    made = a_plan(a_queue_state(nodes, [over, elsewhere, a_job(1, gpus(1))]), later)
    assert [(stop.job.id, stop.kind) for stop in made.stops] == [(9, "overtime")]
    assert a_plan(a_queue_state(nodes, [over, elsewhere, a_job(1, gpus(1))])).stops == ()


def test_a_used_up_class_budget_blocks_jobs_until_the_next_month() -> None:
    middle = NOW + timedelta(days=14)
    urgent = a_job(1, gpus(1), priority_class="urgent")
    normal = a_job(2, gpus(1))
    frugal = a_running_job(9, "a", gpus(1), priority_class="urgent", devices=("a-2",))
    assert set(started(a_plan(a_queue_state((a_node("a", gpus=3),), [frugal, urgent, normal])))) == {1, 2}
    made = a_plan(a_queue_state((a_node("a", gpus=3),), [frugal, urgent, normal]), middle)
    assert set(started(made)) == {2}
    assert made.wake_at == datetime(2026, 4, 1, tzinfo=UTC)


def test_the_month_includes_ended_jobs() -> None:
    accounts = ShareAccounts(user_quotas={"ann": Quota(gpu_hours_per_month=10)})
    ran = a_running_job(9, "a", gpus(1), devices=("a-0",))
    later = NOW + timedelta(hours=11)
    board = a_queue_state((a_node("a", gpus=2),), [ran, a_job(1, gpus(1))], accounts=accounts)
    board.update_job(replace(ran, state=JobState.COMPLETED, ended_at=later), later)
    assert started(a_plan(board, later)) == {}
    assert started(a_plan(board, later + timedelta(days=31))) == {1: ("a",)}


def test_a_class_without_budget_starts_nothing_not_even_without_gpus() -> None:
    urgent = replace(SchedulingPolicy().classes["urgent"], gpu_hours_per_month=0)
    policy = SchedulingPolicy(classes={**SchedulingPolicy().classes, "urgent": urgent})
    board = a_queue_state((a_node("a", gpus=1),), [a_job(1, priority_class="urgent"), a_job(2)], policy)
    assert set(started(a_plan(board))) == {2}


def test_an_exclusive_job_counts_and_is_charged_for_all_gpus_of_its_node() -> None:
    alone = a_job(1, placement=PlacementRequest(exclusive=True), time_limit_seconds=HOUR)
    nodes = (a_node("a", gpus=4),)
    none = ShareAccounts(user_quotas={"ann": Quota(running_gpus=3)})
    assert started(a_plan(a_queue_state(nodes, [alone], accounts=none))) == {}
    enough = ShareAccounts(user_quotas={"ann": Quota(running_gpus=4)})
    assert started(a_plan(a_queue_state(nodes, [alone], accounts=enough))) == {1: ("a",)}
    running = a_running_job(1, "a", placement=PlacementRequest(exclusive=True), time_limit_seconds=HOUR)
    board = a_queue_state(nodes, [running])
    later = NOW + timedelta(hours=1)
    board.update_job(replace(running, state=JobState.COMPLETED, ended_at=later), later)
    assert 3.9 < board.snapshot(later).usage_by_leaf[0] < 4.2


def test_the_month_includes_what_running_jobs_may_still_use() -> None:
    accounts = ShareAccounts(user_quotas={"ann": Quota(gpu_hours_per_month=10)})
    jobs = [a_job(number, gpus(1), time_limit_seconds=11 * HOUR) for number in (1, 2)]
    assert set(started(a_plan(a_queue_state((a_node("a", gpus=2),), jobs, accounts=accounts)))) == {1}
    running = a_running_job(1, "a", gpus(1), devices=("a-0",), time_limit_seconds=11 * HOUR)
    assert started(a_plan(a_queue_state((a_node("a", gpus=2),), [running, jobs[1]], accounts=accounts))) == {}


def test_reserved_gpus_include_their_fraction_of_cpus_and_memory() -> None:
    held = Reservation(
        "course", ("a",), NOW - timedelta(hours=1), NOW + timedelta(hours=4), project="course", gpus_per_node=2
    )
    node = a_node("a", cpus=8, gpus=4)
    greedy = a_job(1, Resources(5, 10), time_limit_seconds=HOUR)
    alone = a_job(2, placement=PlacementRequest(exclusive=True), time_limit_seconds=HOUR)
    modest = a_job(3, Resources(4, 10), time_limit_seconds=HOUR)
    own = a_job(4, Resources(4, 10, 2), project="course", time_limit_seconds=HOUR)
    assert set(started(a_plan(a_queue_state((node,), [greedy, alone, modest, own], reservations=(held,))))) == {
        3,
        4,
    }


def test_bookings_are_known_on_a_full_cluster_too() -> None:
    node = a_node("a", gpus=4)
    full = a_running_job(9, "a", gpus(4), devices=devices("a", 0, 1, 2, 3), time_limit_seconds=HOUR)
    made = a_plan(a_queue_state((node,), [full, a_job(1, gpus(2)), a_job(2, gpus(1))], FIFO_BACKFILL))
    assert [(head.job_id, head.starts_at, head.nodes) for head in made.booked_starts] == [
        (1, NOW + timedelta(hours=1), ("a",))
    ]


def test_many_different_jobs_of_one_user_that_fit_nowhere_do_not_block_others() -> None:
    node = a_node("a", gpus=4, cpus=4000)
    running = a_running_job(9, "a", gpus(3), devices=devices("a", 0, 1, 2), time_limit_seconds=HOUR)
    head = a_job(1, gpus(4))
    many = [a_job(10 + n, Resources(1 + n, 10, 1), user="ann", time_limit_seconds=2 * HOUR) for n in range(150)]
    short = a_job(500, gpus(1), user="bob", time_limit_seconds=HOUR // 2)
    assert started(a_plan(a_queue_state((node,), [running, head, *many, short], FIFO_BACKFILL))) == {500: ("a",)}
