"""Past usage with decay."""

import math
from random import Random

import numpy as np
import pytest

from heliostat.scheduling.usage_ledger import UsageLedger

WEEK = 7 * 86400.0
START = 1_700_000_000.0


def charged(*charges: tuple[int, float, float, float], half_life: float = WEEK) -> UsageLedger:
    ledger = UsageLedger(half_life)
    for charge in charges:
        ledger.charge(*charge)
    return ledger


def faded_by_hand(rate: float, start: float, end: float, now: float, steps: int = 100_000) -> float:
    """Second after second, each halved once per half-life since."""
    times = np.linspace(start, end, steps, endpoint=False) + (end - start) / steps / 2
    return float((rate * (end - start) / steps * np.exp2((times - now) / WEEK)).sum())


@pytest.mark.parametrize("began", [START, 0.0, -5 * WEEK])
def test_after_a_half_life_usage_counts_half(began: float) -> None:
    ledger = charged((0, 1 / 3600, began, began + 3600))
    now = ledger.decayed_usage(1, began + 3600)[0]
    assert now == pytest.approx(1.0, rel=1e-2)
    assert ledger.decayed_usage(1, began + 3600 + WEEK)[0] == pytest.approx(now / 2)
    assert ledger.decayed_usage(1, began + 3600 + 10 * WEEK)[0] == pytest.approx(now / 1024)


def test_long_usage_decays_while_it_lasts() -> None:
    ledger = charged((0, 2.0, START, START + 3 * WEEK))
    expected = 2.0 * WEEK / math.log(2) * (1 - 1 / 8)
    assert ledger.decayed_usage(1, START + 3 * WEEK)[0] == pytest.approx(expected)
    assert expected == pytest.approx(faded_by_hand(2.0, START, START + 3 * WEEK, START + 3 * WEEK), rel=1e-6)


def test_running_usage_counts_like_charged_usage() -> None:
    ledger = UsageLedger(WEEK)
    assert ledger.decayed_seconds(np.array([START]), START + WEEK)[0] == pytest.approx(
        charged((0, 1.0, START, START + WEEK)).decayed_usage(1, START + WEEK)[0]
    )


def test_the_order_of_charges_does_not_matter() -> None:
    random = Random(3)
    charges = [(random.randrange(40), random.random(), START + i * 9e5, START + i * 9e5 + 5e5) for i in range(80)]
    now = START + 81 * 9e5
    forward = charged(*charges).decayed_usage(40, now)
    random.shuffle(charges)
    assert charged(*charges).decayed_usage(40, now) == pytest.approx(forward)
    by_hand = sum(faded_by_hand(rate, start, end, now, 2000) for who, rate, start, end in charges if who == 7)
    assert forward[7] == pytest.approx(by_hand, rel=1e-4)


def test_after_a_very_long_gap_only_new_usage_counts() -> None:
    ledger = charged((0, 1.0, START, START + 3600))
    assert ledger.decayed_usage(1, START + 5000 * WEEK)[0] == 0.0
    ledger.charge(1, 1.0, START + 5000 * WEEK, START + 5000 * WEEK + 3600)
    assert ledger.decayed_usage(2, START + 5000 * WEEK + 3600) == pytest.approx([0.0, 3600.0], rel=1e-2)
    late = charged((0, 1.0, START, START + 3600))
    late.charge(0, 1.0, START - 5000 * WEEK, START - 5000 * WEEK + 3600)
    assert late.decayed_usage(1, START + 3600)[0] == pytest.approx(3600, rel=1e-2)


def test_an_account_without_charges_has_no_usage_and_a_copy_is_independent() -> None:
    ledger = charged((3, 1.0, START, START + 3600))
    other = ledger.copy()
    other.charge(100, 1.0, START, START + 3600)
    assert ledger.decayed_usage(200, START).nonzero()[0].tolist() == [3]
    assert other.decayed_usage(200, START).nonzero()[0].tolist() == [3, 100]


def test_a_clock_set_back_by_decades_does_not_change_usage() -> None:
    ledger = UsageLedger(7 * 86400.0)
    ledger.charge(0, 1.0, 2e9 - 3600, 2e9)
    assert ledger.decayed_usage(1, 1e9) == ledger.decayed_usage(1, 2e9)
