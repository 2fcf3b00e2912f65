"""What jobs asked for and received, hour by hour."""

from datetime import UTC, datetime, timedelta

import pytest

from heliostat.models import Department, JobSpan, Project, Quota
from heliostat.scheduling.policy import ChargeRates, SchedulingPolicy
from heliostat.scheduling.queue_history import QueueHistory, build_queue_history
from heliostat.scheduling.share_accounts import ShareAccounts

START = datetime(2026, 3, 2, tzinfo=UTC)
POLICY = SchedulingPolicy(charges=ChargeRates(gpus={"v100": 0.5}))


def a_span(number: int, submitted: float, started: float | None, ended: float | None, **fields: object) -> JobSpan:
    """Times are in hours since START; it waited in the queue from its submission to its start."""
    begin = START.timestamp()
    waited = ((ended if started is None else started) or 0.0) - submitted
    span = JobSpan(
        *(number, "vision", "ann", "normal", 1.0, 0, 0, None, None, None, False),
        begin + submitted * 3600,
        max(waited, 0.0) * 3600,
        None if started is None else begin + started * 3600,
        None if ended is None else begin + ended * 3600,
    )
    return span._replace(**fields)


def history_of(*spans: JobSpan, hours: float = 6, accounts: ShareAccounts | None = None) -> QueueHistory:
    return build_queue_history(spans, START, START + timedelta(hours=hours), accounts or ShareAccounts(), POLICY)


def test_a_run_is_delivered_and_the_wait_before_it_is_demand() -> None:
    history = history_of(a_span(1, 0.5, 2.25, 4.5))
    assert history.tree.leaves == (("vision", "ann"),)
    assert history.delivered.tolist() == [[0, 0, 0.75, 1, 0.5, 0]]
    assert history.demand.tolist() == [[0.5, 1, 1, 1, 0.5, 0]]
    assert history.work.tolist() == [[2.25, 0, 0, 0, 0, 0]]


def test_usage_is_charged_as_in_the_queue() -> None:
    charged = a_span(1, 0, 0, 1, gpus=4.0, cpus=10, memory_mib=50 * 1024, gpu_type="V100")
    assert history_of(charged, hours=1).delivered.tolist() == [[pytest.approx(4 * 0.5 + 10 * 0.02 + 50 * 0.002)]]


def test_a_mig_slice_is_charged_and_counted_in_quotas_as_its_part_of_a_card() -> None:
    jobs = [a_span(number, 0, None, None, waited_seconds=3600.0, gpu_type="V100-1g.4gb") for number in range(14)]
    assert history_of(*jobs, hours=1).demand.tolist() == [[pytest.approx(14 / 7 * 0.5)]]
    limited = ShareAccounts(user_quotas={"ann": Quota(running_gpus=1)})
    assert history_of(*jobs, hours=1, accounts=limited).demand.tolist() == [[pytest.approx(7 / 7 * 0.5)]]


def test_time_outside_the_period_does_not_count() -> None:
    history = history_of(a_span(1, -9, -5, 1), a_span(2, -9, -5, -4), a_span(3, 1, 5, 99))
    assert history.delivered.tolist() == [[1, 0, 0, 0, 0, 1]]
    assert history.demand.tolist() == [[1, 1, 1, 1, 1, 1]]
    assert history.work.tolist() == [[1, 1, 0, 0, 0, 0]]


def test_a_job_that_waits_or_runs_now_asks_for_more_than_it_has_used() -> None:
    history = history_of(a_span(1, 0, None, None, waited_seconds=6 * 3600.0), a_span(2, 1, 4, None))
    assert history.demand.tolist() == [[1, 2, 2, 2, 2, 2]]
    assert history.work.tolist() == [[6, 5, 0, 0, 0, 0]]


def test_time_that_is_not_in_the_queue_is_no_demand() -> None:
    held_until_3 = a_span(1, 0, 4, 5, waited_seconds=3600.0)
    assert history_of(held_until_3).demand.tolist() == [[0, 0, 0, 1, 1, 0]]


def test_the_time_between_two_runs_of_a_job_is_demand_and_not_more_than_it_waited() -> None:
    runs = [a_span(1, 0, started, ended, waited_seconds=2 * 3600.0) for started, ended in ((1, 2), (3, 4))]
    history = history_of(*reversed(runs))
    assert history.demand.tolist() == [[1, 1, 1, 1, 0, 0]]
    assert history.delivered.tolist() == [[0, 1, 0, 1, 0, 0]]
    delayed = [span._replace(waited_seconds=1800.0) for span in runs]
    assert history_of(*delayed).demand.tolist() == [[0, 1, 0.5, 1, 0, 0]]


@pytest.mark.parametrize("fields", [{"priority_class": "scavenger"}, {"waits_for_reservation": True}])
def test_a_job_that_waits_for_leftovers_or_a_reservation_asks_only_for_what_it_gets(
    fields: dict[str, object],
) -> None:
    assert history_of(a_span(1, 0, 2, 3, **fields)).demand.tolist() == [[0, 0, 1, 0, 0, 0]]


def test_an_array_asks_for_no_more_elements_than_may_run_at_once() -> None:
    elements = [
        a_span(number, 0, None, None, array_id=5, array_limit=2, waited_seconds=6 * 3600.0) for number in range(7)
    ]
    running = a_span(7, 0, 1, 3, array_id=5, array_limit=2)
    other = a_span(8, 0, 0, 1, array_id=6, array_limit=2, user="bob")
    history = history_of(*elements, other, running)
    assert history.demand.tolist() == [[2, 2, 2, 2, 2, 2], [1, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("level", ["user", "project", "department"])
def test_an_account_asks_for_no_more_gpus_than_its_quota_allows(level: str) -> None:
    quota = Quota(running_gpus=2)
    accounts = ShareAccounts(
        {"lab": Department("lab", quota=quota if level == "department" else Quota())},
        {"vision": Project("vision", "lab", quota=quota if level == "project" else Quota())},
        {"ann": quota} if level == "user" else {},
    )
    jobs = [a_span(number, 0, None, None, waited_seconds=6 * 3600.0) for number in range(5)]
    assert history_of(*jobs, hours=2, accounts=accounts).demand.tolist() == [[2, 2]]
    ran = [a_span(number, 0, 0, 2) for number in range(3)]
    assert history_of(*jobs, *ran, hours=2, accounts=accounts).demand.tolist() == [[3, 3]]


def test_without_jobs_there_is_no_account() -> None:
    assert history_of().delivered.shape == (0, 6)
