"""Reasons of pending jobs, as users read them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from heliostat.models import (
    Department,
    Job,
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
from heliostat.scheduling.explain.explainer import WaitExplainer, WaitExplanation
from heliostat.scheduling.queue_state import PastUsage
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.scheduling.snapshot import Plan
from unit.scheduling.builders import FIFO_BACKFILL, NOW, a_job, a_node, a_plan, a_queue_state, a_running_job

HOUR = 3600
NODE = a_node("a", gpus=4)


def gpus(count: float, **fields: object) -> Resources:
    return replace(Resources(1, 10, count), **fields)  # type: ignore[arg-type]


def why(number: int, *jobs: Job, nodes: tuple[Node, ...] = (NODE,), **more: object) -> WaitExplanation:
    board = a_queue_state(nodes, jobs, **more)  # type: ignore[arg-type]
    snapshot = board.snapshot(NOW)
    found = WaitExplainer(snapshot, board.policy, a_plan(board), NOW).explain(number)
    assert found is not None
    return found


def said(number: int, *jobs: Job, **more: object) -> tuple[str, str]:
    found = why(number, *jobs, **more)  # type: ignore[arg-type]
    return found.blocked_by, found.sentence


def busy(number: int, *devices: int, node: str = "a", **fields: object) -> Job:
    uuids = tuple(f"{node}-{index}" for index in devices)
    return a_running_job(
        number, node, gpus(len(uuids)), devices=uuids, **{"time_limit_seconds": 2 * HOUR} | fields
    )


def test_without_nodes_or_with_none_that_could_run_it() -> None:
    assert said(1, a_job(1), nodes=()) == ("nodes", "the cluster has no nodes")
    assert said(1, a_job(1, gpus(8))) == ("nodes", "no node can run it: it needs 8 GPUs on one node")
    labelled = a_job(1, placement=PlacementRequest(labels=("disk=ssd",)))
    assert said(1, labelled)[1] == (
        "no node can run it: it needs 1 CPU and 100 MiB, and no such node has the label disk=ssd"
    )
    secret = ShareAccounts(projects={"default": Project("default", "default", data_class=2)})
    assert said(1, a_job(1), accounts=secret)[1].endswith(", and no such node accepts data of class 2")


def test_with_all_nodes_drained() -> None:
    drained = replace(NODE, state=NodeState.DRAINED, reason="new fan")
    words = "every node that could run it is drained or down: a is drained (new fan)"
    assert said(1, a_job(1), nodes=(drained,)) == ("nodes", words)


def test_an_array_at_its_limit() -> None:
    jobs = [a_job(number, array_id=1, array_index=number, array_limit=1) for number in (1, 2)]
    assert said(2, *jobs) == ("array", "the limit of its array is reached: 1 running at once")


def test_a_quota_of_each_kind() -> None:
    running, job = busy(9, 0, 1), a_job(1, gpus(2))
    by_user = ShareAccounts(user_quotas={"ann": Quota(running_gpus=1)})
    expected = "exceeds the quota of user ann: 1 GPU at once, 2 in use"
    assert said(1, running, job, accounts=by_user) == ("quota", expected)
    project = ShareAccounts(projects={"default": Project("default", "d", quota=Quota(running_gpus=2))})
    expected = "exceeds the quota of project default: 2 GPUs at once, 2 in use"
    assert said(1, running, job, accounts=project)[1] == expected
    departments = {"d": Department("d", quota=Quota(gpu_hours_per_month=1))}
    accounts = ShareAccounts(departments, {"default": Project("default", "d")})
    older = replace(running, started_at=NOW - timedelta(hours=1))
    expected = "department d has used its 1 GPU-hour of this month, running jobs included"
    expected += "; the quota resets at 2026-04-01 00:00 UTC"
    assert said(1, older, job, accounts=accounts)[1] == expected
    urgent = replace(job, priority_class="urgent")
    board = a_queue_state((NODE,), [urgent])
    past = PastUsage("ann", "default", "urgent", NOW.timestamp() - HOUR, NOW.timestamp(), 0.0, 100.0)
    board.add_past_usage([past], NOW)
    found = WaitExplainer(board.snapshot(NOW), board.policy, a_plan(board), NOW).explain(1)
    assert found is not None
    assert found.sentence.startswith("project default has used its 100 GPU-hours of class urgent this month; ")


def test_missing_resources() -> None:
    jobs = busy(9, 0, 1), a_job(1, gpus(4))
    assert said(1, *jobs) == ("resources", "needs 4 GPUs on one node; 2 GPUs and 7 CPUs are free on a")
    gang = a_job(1, gpus(2), placement=PlacementRequest(tasks=2))
    assert said(1, busy(9, 0, 1), gang)[1] == "needs 2 tasks of 2 GPUs at once; 1 of 2 tasks fits now"
    nodes = (NODE, a_node("b", gpus=4))
    apart = replace(gang, placement=PlacementRequest(tasks=2, layout=TaskLayout.SPREAD))
    assert said(1, busy(9, 0, 1, 2), apart, nodes=nodes)[1] == (
        "needs 2 tasks of 2 GPUs, each on its own node; 1 of 2 tasks fits now"
    )
    alone = a_job(1, placement=PlacementRequest(exclusive=True))
    assert said(1, busy(9, 0), alone)[1].startswith(
        "needs 1 CPU and 100 MiB on an empty node; 7 CPUs are free on a"
    )


def test_a_reservation_now_and_later() -> None:
    course = Reservation("x", ("a",), NOW - timedelta(hours=1), NOW + timedelta(hours=3), project="course")
    job = a_job(1, gpus(1), time_limit_seconds=5 * HOUR)
    assert said(1, job, reservations=(course,)) == (
        "reservation",
        "a is reserved for project course until 2026-03-01 15:00 UTC",
    )
    later = replace(course, starts_at=NOW + timedelta(hours=2), project=None)
    assert said(1, job, reservations=(later,))[1] == (
        "a is reserved for maintenance from 2026-03-01 14:00 UTC until 2026-03-01 15:00 UTC; "
        "with a --time that ends before then it could start now"
    )


def test_resources_booked_for_another_job() -> None:
    long = a_job(2, gpus(1), time_limit_seconds=9 * HOUR)
    found = why(2, busy(9, 0, 1), a_job(1, gpus(4), time_limit_seconds=HOUR), long, policy=FIFO_BACKFILL)
    assert found.blocked_by == "booking"
    assert found.sentence == (
        "a is booked for job 1, which starts by 2026-03-01 14:00 UTC at the latest; "
        "with a --time that ends before then it could start now; 1 job of 1 project is ahead"
    )
    assert (found.position, found.pending, found.first_ahead) == (2, 2, (1,))
    head = why(1, busy(9, 0, 1), a_job(1, gpus(4), time_limit_seconds=HOUR), long, policy=FIFO_BACKFILL)
    assert head.starts_by == NOW + timedelta(hours=2)


def test_how_many_are_ahead_and_what_the_project_has_used() -> None:
    ahead = [
        a_job(number, gpus(4), project=name, submitted_at=NOW - timedelta(hours=9))
        for number, name in ((1, "red"), (2, "green"))
    ]
    found = why(3, busy(9, 0, 1, 2, 3, project="blue"), *ahead, a_job(3, gpus(4), project="blue"))
    assert found.ahead_projects == 2
    assert found.sentence.endswith("; 2 jobs of 2 projects are ahead")
    many = a_node("a", cpus=64, memory_mib=10**5, gpus=4)
    week = timedelta(days=7)
    long = replace(busy(9, 0, 1, 2, 3, project="blue"), started_at=NOW - week, time_limit_seconds=8 * 24 * HOUR)
    heavy = why(3, long, a_job(1, gpus(4), project="red"), a_job(3, gpus(4), project="blue"), nodes=(many,))
    assert heavy.share_used > 1.1
    assert (
        f"project blue has used {heavy.share_used:.1f}\N{MULTIPLICATION SIGN} its share recently" in heavy.sentence
    )


def test_the_share_of_a_single_project_comes_from_the_share_tree() -> None:
    found = why(3, busy(9, 0, 1, 2, 3), a_job(3, gpus(4)))
    assert 0 < found.share_used < 1


def test_jobs_that_start_or_are_not_pending_have_no_explanation() -> None:
    jobs = [a_job(1), replace(a_job(2), state=JobState.HELD), busy(9, 0)]
    board = a_queue_state((NODE,), jobs)
    explainer = WaitExplainer(board.snapshot(NOW), board.policy, a_plan(board), NOW)
    assert [explainer.explain(number) for number in (1, 2, 9, 77)] == [None] * 4
    assert [explainer.short_reason(number) for number in (1, 2, 9, 77)] == [None] * 4
    assert explainer.queue_position(1) is None


SHARING = replace(NODE, splits_devices=True)


def part(number: int, device: int, size: float = 0.5, node: str = "a", **fields: object) -> Job:
    uuids = (f"{node}-{device}",)
    return a_running_job(number, node, gpus(size), devices=uuids, **{"time_limit_seconds": 2 * HOUR} | fields)


def test_a_fraction_fits_on_shared_gpus() -> None:
    full = busy(9, 0, 1, 2), part(8, 3)
    long = a_job(2, gpus(0.5), time_limit_seconds=9 * HOUR)
    head = a_job(1, gpus(4), time_limit_seconds=HOUR)
    assert why(2, *full, head, long, nodes=(SHARING,), policy=FIFO_BACKFILL).blocked_by == "booking"


def test_a_planned_fraction_on_a_shared_gpu_counts_once() -> None:
    jobs = part(9, 0, 0.4), a_job(1, gpus(0.5)), a_job(2, gpus(1), placement=PlacementRequest(tasks=4))
    board = a_queue_state((SHARING,), jobs, policy=FIFO_BACKFILL)
    found = WaitExplainer(board.snapshot(NOW), board.policy, a_plan(board), NOW).explain(2)
    assert found is not None
    assert found.sentence.endswith("; 3 of 4 tasks fit now")


def test_tasks_with_fractions_are_counted_on_shared_gpus_too() -> None:
    gang = a_job(1, gpus(0.5), placement=PlacementRequest(tasks=3))
    found = said(1, busy(9, 0, 1), part(8, 2), part(7, 3), gang, nodes=(SHARING,))
    assert found == ("resources", "needs 3 tasks of 0.5 GPU at once; 2 of 3 tasks fit now")


def test_partly_free_gpus_are_reported() -> None:
    two = replace(a_node("a", gpus=2), splits_devices=True)
    shared = part(8, 0), part(7, 1)
    assert said(1, *shared, a_job(1, gpus(1)), nodes=(two,))[1] == (
        "needs 1 GPU; 0 GPUs and 6 CPUs are free on a (2 GPUs are shared, 0.5 free on each)"
    )
    uneven = part(8, 0, 0.7), part(7, 1)
    assert said(1, *uneven, a_job(1, gpus(0.75)), nodes=(two,))[1].endswith(
        "(2 GPUs are shared, at most 0.5 free on one)"
    )


def test_nodes_in_maintenance_do_not_count_as_free() -> None:
    nodes = (NODE, a_node("b", gpus=4))
    repair = Reservation("x", ("b",), NOW - timedelta(hours=1), NOW + timedelta(hours=3))
    gang = a_job(1, gpus(4), placement=PlacementRequest(tasks=2))
    reserved = "b is reserved for maintenance until 2026-03-01 15:00 UTC"
    assert said(1, busy(9, 0), gang, nodes=nodes, reservations=(repair,)) == (
        "resources",
        f"needs 2 tasks of 4 GPUs at once; 0 of 2 tasks fit now; {reserved}",
    )
    alone = a_job(1, gpus(4))
    assert said(1, busy(9, 0), busy(8, 0, node="b"), alone, nodes=nodes, reservations=(repair,))[1] == (
        f"needs 4 GPUs on one node; 3 GPUs and 7 CPUs are free on a; {reserved}"
    )


def test_two_reservations_that_block_a_job_together_are_reported() -> None:
    nodes = (NODE, a_node("b", gpus=4))
    course = Reservation("x", ("a",), NOW - timedelta(hours=1), NOW + timedelta(hours=3), project="course")
    repair = Reservation("y", ("b",), NOW - timedelta(hours=1), NOW + timedelta(hours=2))
    assert said(1, a_job(1, gpus(1)), nodes=nodes, reservations=(course, repair)) == (
        "reservation",
        "a is reserved for project course until 2026-03-01 15:00 UTC; "
        "b is reserved for maintenance until 2026-03-01 14:00 UTC",
    )


def test_the_reason_of_an_infeasible_job_names_the_missing_requirement() -> None:
    secret = ShareAccounts(projects={"default": Project("default", "default", data_class=2)})
    cleared = a_node("b", data_class=3)
    a100 = a_job(1, gpus(1, gpu_type="A100"))
    assert said(1, a100, nodes=(NODE, cleared), accounts=secret)[1] == (
        "no node can run it: it needs 1 A100, and no such node accepts data of class 2"
    )
    half = a_job(1, gpus(0.5))
    assert said(1, half, nodes=(NODE, replace(cleared, splits_devices=True)))[1] == (
        "no node can run it: it needs 0.5 GPU, and such nodes allocate whole GPUs only"
    )


def test_drained_nodes_are_the_reason_even_if_other_nodes_are_up() -> None:
    drained = replace(NODE, state=NodeState.DRAINED)
    assert said(1, a_job(1, gpus(1)), nodes=(drained, a_node("b")))[1] == (
        "every node that could run it is drained or down: a is drained"
    )
    gang = a_job(1, gpus(4), placement=PlacementRequest(tasks=2))
    assert said(1, gang, nodes=(drained, a_node("c", gpus=4)))[1] == (
        "too few nodes that could run it are up: a is drained"
    )


def test_a_job_that_waits_for_resources_learns_why_other_nodes_are_not_used() -> None:
    fan = {"state": NodeState.DRAINED, "reason": "new fan"}
    nodes = (NODE, replace(a_node("b", gpus=4), **fan), replace(a_node("c", gpus=4), **fan), a_node("d"))
    reason = said(1, busy(9, 0, 1), a_job(1, gpus(4)), nodes=nodes)[1]
    assert reason.endswith("; b, c are drained (new fan)")


def test_the_reset_time_is_named_when_the_monthly_quota_is_used_up() -> None:
    accounts = ShareAccounts(projects={"default": Project("default", "d", quota=Quota(gpu_hours_per_month=10))})
    board = a_queue_state((NODE,), [a_job(1, gpus(1))], accounts=accounts)
    board.add_past_usage(
        [PastUsage("ann", "default", "normal", NOW.timestamp() - HOUR, NOW.timestamp(), 0.0, 12.0)], NOW
    )
    found = WaitExplainer(board.snapshot(NOW), board.policy, a_plan(board), NOW).explain(1)
    assert found is not None
    assert found.sentence.endswith("; the quota resets at 2026-04-01 00:00 UTC")
    assert found.not_before == datetime(2026, 4, 1, tzinfo=UTC)
    running = why(1, busy(9, 0, 1, time_limit_seconds=9 * HOUR), a_job(1, gpus(1)), accounts=accounts)
    assert (running.blocked_by, running.not_before) == ("quota", None)


def should_run(*jobs: Job, minutes: float = 5, made: Plan | None = None, **more: object) -> bool:
    """Whether a job that has waited so long is found that should run."""
    board = a_queue_state((NODE,), jobs, **more)  # type: ignore[arg-type]
    explainer = WaitExplainer(board.snapshot(NOW), board.policy, made or Plan(), NOW)
    return explainer.has_unexplained_wait(NOW - timedelta(minutes=minutes))


def test_a_job_that_fits_and_waits_without_a_reason_should_run() -> None:
    waiting = a_job(1, gpus(2), submitted_at=NOW - timedelta(minutes=6))
    assert should_run(waiting)
    assert not should_run(waiting, minutes=7)
    assert not should_run(waiting, busy(9, 0, 1, 2))  # two GPUs are not free
    assert not should_run(replace(waiting, state=JobState.HELD))


def test_a_job_that_a_rule_holds_back_should_not_run() -> None:
    waiting = a_job(1, gpus(2), submitted_at=NOW - timedelta(hours=1))
    quota = ShareAccounts(projects={"default": Project("default", "default", quota=Quota(running_gpus=1))})
    assert not should_run(waiting, accounts=quota)
    limited = [replace(waiting, id=number, array_id=1, array_index=number, array_limit=0) for number in (1, 2)]
    assert not should_run(*limited)


def test_a_job_that_the_plan_starts_again_and_again_should_run() -> None:
    waiting = a_job(1, gpus(2), submitted_at=NOW - timedelta(hours=1))
    assert should_run(waiting, made=a_plan(a_queue_state((NODE,), [waiting])))
