"""Packing, rolling up and laying onto a grid."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.store.sample_chunks import (
    SampleChunk,
    TimeGrid,
    add_unknown_columns,
    pack,
    pack_row,
    resample_chunks,
    roll_up_chunks,
    unpack,
)

VALUE = st.one_of(st.none(), st.floats(0, 1e9))
ROWS = st.integers(1, 5).flatmap(
    lambda columns: st.lists(st.lists(VALUE, min_size=columns, max_size=columns), min_size=1, max_size=60)
)


def chunk(rows: list[list[float | None]], first: int = 0, step: int = 10) -> SampleChunk:
    values = np.array([[math.nan if value is None else value for value in row] for row in rows], dtype=float)
    return SampleChunk(first, step, values, values)


@given(ROWS)
def test_what_is_packed_comes_back_as_good_as_a_plot_needs_it(rows: list[list[float | None]]) -> None:
    columns = len(rows[0])
    by_row = unpack(b"".join(pack_row(row) for row in rows), columns)
    at_once = unpack(pack(chunk(rows).mean), columns)
    for back in (by_row, at_once):
        for row, found in zip(rows, back.tolist(), strict=True):
            for value, again in zip(row, found, strict=True):
                if value is None:
                    assert math.isnan(again)
                else:
                    assert again == pytest.approx(value, rel=0.0006, abs=0.001)


def test_what_no_half_float_can_hold_is_bent_into_range() -> None:
    [[below, above]] = unpack(pack_row([-3.0, 1e12]), 2).tolist()
    assert below == 0
    assert above == 65504 * 2**14


def test_a_row_that_was_cut_off_is_left_out() -> None:
    assert unpack(pack_row([1.0, 2.0]) + pack_row([3.0])[:1], 2).shape == (1, 2)


@given(ROWS, st.integers(0, 10**6), st.sampled_from([20, 60, 300, 3600]))
def test_a_roll_up_keeps_the_largest_and_stays_between_the_ends(
    rows: list[list[float | None]], slot: int, step: int
) -> None:
    fine = chunk(rows, slot * 10)
    coarse = roll_up_chunks([fine], step)
    assert coarse.first % step == 0
    assert coarse.first <= fine.first
    assert coarse.end >= fine.end
    for column in range(fine.mean.shape[1]):
        known = [row[column] for row in rows if row[column] is not None]
        means, largest = coarse.mean[:, column], coarse.max[:, column]
        assert np.isnan(means).all() == (not known)
        if known:
            assert np.nanmax(largest) == max(known)
            assert np.nanmin(means) >= min(known) * (1 - 1e-9)
            assert np.nanmax(means) <= max(known) * (1 + 1e-9)
            assert (np.isnan(means) == np.isnan(largest)).all()


@given(st.lists(st.floats(0, 1e6), min_size=360, max_size=360), st.sampled_from([60, 300, 600]))
def test_where_nothing_is_missing_the_mean_stays_the_mean(values: list[float], step: int) -> None:
    fine = chunk([[value] for value in values])
    by_way = roll_up_chunks([roll_up_chunks([fine], step)], 3600)
    assert by_way.mean[0, 0] == pytest.approx(np.mean(values), rel=1e-6, abs=1e-6)
    assert by_way.max[0, 0] == max(values)


@given(ROWS, st.integers(1, 59))
def test_it_does_not_matter_how_values_were_cut_into_chunks(rows: list[list[float | None]], at: int) -> None:
    whole = chunk(rows)
    parts = [chunk(rows[:at]), chunk(rows[at:], at * 10)] if at < len(rows) else [whole]
    one, other = roll_up_chunks([whole], 60), roll_up_chunks(parts, 60)
    np.testing.assert_allclose(one.mean, other.mean)
    np.testing.assert_array_equal(one.max, other.max)


def test_a_long_step_counts_for_as_long_as_it_is() -> None:
    mixed = resample_chunks([chunk([[10.0]], 0, 300), chunk([[40.0]], 300, 10)], TimeGrid(0, 600, 1))
    assert mixed.mean[0, 0] == pytest.approx((10 * 300 + 40 * 10) / 310)


def test_what_lies_outside_the_grid_is_left_out_and_what_is_not_known_stays_so() -> None:
    laid = resample_chunks([chunk([[1.0], [2.0], [3.0]], 90)], TimeGrid(100, 10, 4))
    np.testing.assert_array_equal(laid.mean[:, 0], [2.0, 3.0, math.nan, math.nan])


def test_chunks_of_different_width_become_one() -> None:
    laid = resample_chunks([chunk([[1.0]]), chunk([[2.0, 50.0]], 10)], TimeGrid(0, 10, 2))
    np.testing.assert_array_equal(laid.mean, [[1.0, math.nan], [2.0, 50.0]])
    assert add_unknown_columns(laid.mean, 1) is laid.mean


def test_nothing_laid_onto_a_grid_is_nothing() -> None:
    assert resample_chunks([], TimeGrid(0, 10, 5)).mean.shape == (5, 0)
