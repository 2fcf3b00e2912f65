"""The entitlement of past hours."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import Department, Project
from heliostat.scheduling.entitlement import compute_entitlement
from heliostat.scheduling.fair_share_tree import build_fair_share_tree
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.queue_history import QueueHistory
from heliostat.scheduling.share_accounts import ShareAccounts

WEEK = 7 * 24.0  # hours
ACCOUNTS = ShareAccounts(
    {"lab": Department("lab", 3), "clinic": Department("clinic", 1)},
    {
        name: Project(name, department, share=share)
        for name, department, share in (("vision", "lab", 2), ("audio", "lab", 1), ("scans", "clinic", 1))
    },
)
LEAVES = (("vision", "ann"), ("vision", "bob"), ("audio", "ann"), ("scans", "cat"))


def a_history(delivered: Array, demand: Array, work: Array, leaves: tuple[tuple[str, str], ...]) -> QueueHistory:
    return QueueHistory(build_fair_share_tree(leaves, ACCOUNTS), delivered, demand, work)


def saturated(delivered: Array, leaves: tuple[tuple[str, str], ...] = LEAVES) -> QueueHistory:
    """Everybody always asks for more than there is."""
    plenty = np.full_like(delivered, 2 * delivered.sum() + 1)
    return a_history(delivered, plenty, plenty, leaves)


amounts = st.floats(0, 100).map(lambda value: round(value, 3))


@st.composite
def histories(draw: st.DrawFn) -> QueueHistory:
    shape = (len(LEAVES), draw(st.integers(1, 6)))
    delivered, waiting, work = (
        np.array(draw(st.lists(amounts, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])))
        for _ in range(3)
    )
    is_idle = np.array(draw(st.lists(st.booleans(), min_size=len(delivered), max_size=len(delivered))))
    delivered[is_idle] = waiting[is_idle] = 0.0
    return a_history(*(values.reshape(shape) for values in (delivered, delivered + waiting, work)), LEAVES)


@given(histories(), st.sampled_from([0.01, 24.0, WEEK, 1e6]))
def test_every_hour_is_divided_completely_and_none_gets_more_than_it_asks_for(
    history: QueueHistory, half_life_hours: float
) -> None:
    entitled = compute_entitlement(history, half_life_hours)
    assert entitled.sum(axis=0) == pytest.approx(history.delivered.sum(axis=0), abs=1e-6)
    assert (entitled >= 0).all()
    assert (entitled <= history.demand + 1e-6).all()


@given(histories())
def test_if_no_job_waits_each_account_is_entitled_to_what_it_received(history: QueueHistory) -> None:
    without_waits = a_history(history.delivered, history.delivered, history.delivered, LEAVES)
    assert compute_entitlement(without_waits, WEEK) == pytest.approx(history.delivered, abs=1e-6)


@given(histories())
def test_the_order_of_accounts_does_not_matter(history: QueueHistory) -> None:
    backwards = a_history(history.delivered[::-1], history.demand[::-1], history.work[::-1], LEAVES[::-1])
    expected = compute_entitlement(history, WEEK)[::-1]
    assert compute_entitlement(backwards, WEEK) == pytest.approx(expected, abs=1e-6)


def test_an_account_alone_is_entitled_to_everything() -> None:
    delivered = np.array([[3.0, 0.0, 5.0]])
    assert compute_entitlement(saturated(delivered, LEAVES[:1]), WEEK).tolist() == delivered.tolist()


def test_under_load_the_entitlements_are_the_shares_whoever_received_it() -> None:
    delivered = np.zeros((4, 48))
    delivered[3] = 16.0
    entitled = compute_entitlement(saturated(delivered), WEEK)
    assert entitled == pytest.approx(np.outer([4, 4, 4, 4], np.ones(48)))  # 3/4 x (1/3, 1/3, 1/3) and 1/4


def test_what_one_does_not_ask_for_is_divided_among_the_others_of_its_department_first() -> None:
    history = saturated(np.full((4, 1), 4.0))
    history.demand[2] = history.delivered[2] = 0.0
    history.delivered[3] = 8.0
    assert compute_entitlement(history, WEEK)[:, 0] == pytest.approx([6, 6, 0, 4])
    history.demand[:2] = history.delivered[:2] = 1.0
    history.delivered[3] = 14.0
    assert compute_entitlement(history, WEEK)[:, 0] == pytest.approx([1, 1, 0, 14])


def test_who_asked_for_nothing_catches_up_as_in_the_queue_and_not_without_memory() -> None:
    history = saturated(np.full((4, 48), 4.0))
    history.demand[3, :24] = history.delivered[3, :24] = 0.0
    assert compute_entitlement(history, WEEK)[3, 24] == pytest.approx(16)
    assert compute_entitlement(history, 0.01)[3, 24] == pytest.approx(4)
    assert compute_entitlement(history, WEEK)[3, :24].sum() == 0


def test_an_account_that_received_its_work_late_is_not_entitled_to_it_twice() -> None:
    """It asks for 4 GPU-hours, waits for them for 4 hours, and gets them in the next 4."""
    delivered = np.array([[0, 0, 0, 0, 1, 1, 1, 1], [0] * 8, [0] * 8, [2, 2, 2, 2, 1, 1, 1, 1]], float)
    demand, work = np.zeros_like(delivered), np.zeros_like(delivered)
    demand[0], work[0, 0] = 1.0, 4.0
    demand[3], work[3, 0] = 2.0, 100.0
    entitled = compute_entitlement(a_history(delivered, demand, work, LEAVES), WEEK)
    assert entitled[0] == pytest.approx([1, 1, 1, 1, 0, 0, 0, 0])
