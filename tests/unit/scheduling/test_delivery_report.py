"""The delivery report."""

from datetime import timedelta

import pytest

from heliostat.models import Department, JobSpan, Project
from heliostat.scheduling.delivery_report import (
    AccountDelivery,
    DeliveryPeriod,
    build_delivery_report,
    history_start,
)
from heliostat.scheduling.share_accounts import ShareAccounts
from unit.scheduling.test_queue_history import POLICY, START, a_span

ACCOUNTS = ShareAccounts(
    {"lab": Department("lab", 3), "clinic": Department("clinic"), "idle": Department("idle", 5)},
    {
        name: Project(name, department, (), share)
        for name, department, share in (
            ("vision", "lab", 1),
            ("audio", "lab", 2),
            ("scans", "clinic", 1),
            ("empty", "idle", 1),
        )
    },
)
TWO_DAYS = DeliveryPeriod(START, START + timedelta(hours=36), step_days=1)


def report_of(*spans: JobSpan, period: DeliveryPeriod = TWO_DAYS) -> dict[str, AccountDelivery]:
    departments = build_delivery_report(spans, period, ACCOUNTS, POLICY)
    projects = [project for department in departments for project in department.children]
    return {account.name: account for account in [*departments, *projects]}


def always(number: int, project: str, user: str, gpus: float, received: bool) -> JobSpan:
    """A job that has asked since the beginning and, if it received anything, runs."""
    return a_span(
        number,
        0,
        0 if received else None,
        None,
        project=project,
        user=user,
        gpus=gpus,
        waited_seconds=0.0 if received else 36 * 3600.0,
    )


def test_shares_are_those_among_the_accounts_that_asked_for_something() -> None:
    report = report_of(
        always(1, "vision", "ann", 4, received=True),
        always(2, "audio", "bob", 4, received=False),
        always(3, "scans", "cat", 4, received=False),
    )
    fractions = {name: account.share_fraction for name, account in report.items()}
    assert fractions == pytest.approx(
        {"lab": 0.75, "vision": 0.25, "audio": 0.5, "clinic": 0.25, "scans": 0.25, "idle": None, "empty": None}
    )
    assert [child.name for child in report["vision"].children] == ["ann"]


def test_entitled_and_delivered_are_sums_of_each_day() -> None:
    report = report_of(
        always(1, "vision", "ann", 4, received=True),
        always(2, "audio", "bob", 4, received=False),
        always(3, "scans", "cat", 4, received=False),
    )
    assert report["vision"].delivered == pytest.approx((96, 48))
    assert report["vision"].entitled == pytest.approx((24, 12))
    assert report["audio"].entitled == pytest.approx((48, 24))
    assert report["vision"].ratio == pytest.approx(4)
    assert (report["audio"].ratio, report["empty"].ratio) == (0, None)
    assert report["lab"].delivered == report["vision"].delivered
    assert report["idle"].entitled == (0, 0)


def test_users_share_their_project_equally() -> None:
    report = report_of(
        *(always(number, "vision", user, 2, received=user == "ann") for number, user in enumerate(("bob", "ann")))
    )
    ann, bob = report["vision"].children
    assert (ann.name, ann.share_fraction) == ("ann", 0.5)
    assert ann.delivered == pytest.approx((48, 24))
    assert ann.entitled == bob.entitled == pytest.approx((24, 12))


def test_what_was_received_before_the_period_counts_and_is_not_in_the_sums() -> None:
    earlier = a_span(1, -48, -48, 0, project="vision", user="ann")
    both = [always(number, project, "bob", 4, received=True) for number, project in ((2, "vision"), (3, "scans"))]
    without, report = report_of(*both), report_of(earlier, *both)
    assert sum(report["vision"].delivered) == sum(without["vision"].delivered)
    assert sum(report["vision"].entitled) < sum(without["vision"].entitled)


def test_history_begins_two_half_lives_before_the_period() -> None:
    assert history_start(TWO_DAYS, POLICY) == START - timedelta(days=14)


def test_weeks_are_steps_of_seven_days_and_a_period_without_time_has_none() -> None:
    weeks = DeliveryPeriod(START, START + timedelta(days=15), step_days=7)
    assert len(report_of(always(1, "vision", "ann", 4, received=True), period=weeks)["vision"].delivered) == 3
    nothing = DeliveryPeriod(START, START, step_days=1)
    assert report_of(always(1, "vision", "ann", 4, received=True), period=nothing)["lab"].delivered == ()


def test_without_jobs_every_account_has_nothing() -> None:
    report = report_of()
    assert set(report) == {"lab", "vision", "audio", "clinic", "scans", "idle", "empty"}
    assert {account.share_fraction for account in report.values()} == {None}
