"""The fair-share report."""

from datetime import timedelta

import pytest

from heliostat.models import Department, Project, Resources
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.scheduling.share_report import build_share_report
from unit.scheduling.builders import NOW, a_job, a_node, a_queue_state, a_running_job

ACCOUNTS = ShareAccounts(
    {"lab": Department("lab", 3), "clinic": Department("clinic"), "idle": Department("idle")},
    {
        name: Project(name, home, (), share)
        for name, home, share in (
            ("vision", "lab", 1),
            ("audio", "lab", 2),
            ("scans", "clinic", 1),
            ("empty", "idle", 1),
        )
    },
)


def a_shared_board() -> QueueState:
    busy = a_running_job(
        1,
        "a",
        Resources(1, 10, 4),
        user="ann",
        project="vision",
        devices=("a-0", "a-1", "a-2", "a-3"),
        time_limit_seconds=30 * 3600,
    )
    waiting = [
        a_job(number, Resources(1, 10, 1), user=user, project=project, time_limit_seconds=3600)
        for number, user, project in (
            (2, "ann", "vision"),
            (3, "bob", "vision"),
            (4, "cat", "audio"),
            (5, "dan", "scans"),
        )
    ]
    return a_queue_state((a_node("a", gpus=4),), [busy, *waiting], accounts=ACCOUNTS)


def test_entitlements_are_shares_among_the_accounts_in_use() -> None:
    board = a_shared_board()
    clinic, idle, lab = build_share_report(board.snapshot(NOW), board.policy)
    assert (clinic.entitled, idle.entitled, lab.entitled) == (0.25, None, 0.75)
    assert {one.name: one.entitled for one in lab.children} == {"audio": 0.5, "vision": 0.25}
    vision = lab.children[1]
    assert [(one.name, one.entitled) for one in vision.children] == [("ann", 0.125), ("bob", 0.125)]
    assert [one.name for one in idle.children] == ["empty"]


def test_usage_adds_up_and_the_ratio_shows_overuse() -> None:
    board = a_shared_board()
    clinic, _, lab = build_share_report(board.snapshot(NOW + timedelta(hours=5)), board.policy)
    audio, vision = lab.children
    assert lab.usage == pytest.approx(vision.usage) == pytest.approx(vision.children[0].usage)
    assert vision.ratio > 1 > audio.ratio
    assert clinic.usage == clinic.ratio == 0


def test_what_running_jobs_may_still_use_is_apart() -> None:
    board = a_shared_board()
    _, _, lab = build_share_report(board.snapshot(NOW + timedelta(hours=1)), board.policy)
    ann = lab.children[1].children[0]
    assert lab.reserved == ann.reserved == pytest.approx((ann.usage - ann.reserved) * 6, rel=0.01)


def test_running_jobs_are_charged_a_few_hours_in_advance_whatever_their_limit() -> None:
    week = a_running_job(1, "a", Resources(1, 10, 4), devices=("a-0",), time_limit_seconds=7 * 24 * 3600)
    board = a_queue_state((a_node("a", gpus=4),), [week], accounts=ACCOUNTS)
    (used,) = [one for one in build_share_report(board.snapshot(NOW), board.policy) if one.usage]
    assert used.reserved == pytest.approx(4.04 * 6, rel=0.01)


def test_an_empty_queue_state_has_its_departments_without_usage() -> None:
    board = a_queue_state((a_node("a"),), [], accounts=ACCOUNTS)
    assert [
        (one.name, one.usage, one.entitled) for one in build_share_report(board.snapshot(NOW), board.policy)
    ] == [
        ("clinic", 0.0, None),
        ("idle", 0.0, None),
        ("lab", 0.0, None),
    ]
