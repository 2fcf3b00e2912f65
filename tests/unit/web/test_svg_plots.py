from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from heliostat.web.svg_plots import (
    Curve,
    PlotOptions,
    draw_bar,
    draw_legend,
    draw_line_plot,
    draw_sparkline,
    draw_stacked_plot,
    number_axis_ticks,
    time_axis_ticks,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _series(*values: float | None) -> Curve:
    return Curve("gpu <0>", [(NOON + timedelta(minutes=n), value) for n, value in enumerate(values)])


def test_a_plot_is_well_formed_and_says_what_it_shows_in_words() -> None:
    root = ElementTree.fromstring(
        draw_line_plot([_series(0, 50, None, 100)], PlotOptions("Use of <GPU>", unit=" %", axis_max=100))
    )
    assert root.findtext("title") == "Use of <GPU>"
    assert root.findtext("desc") == "gpu <0>: 100 % at the end, 50 % on average, 100 % at most"


def test_a_gap_parts_the_curve() -> None:
    drawn = draw_line_plot([_series(1, 2, None, 3, 4)], PlotOptions("x"))
    assert drawn.count('class="line c1"') == 2


def test_no_plot_has_inline_style() -> None:
    for drawn in (
        draw_line_plot([_series(1)], PlotOptions("x", limit_line=3)),
        draw_stacked_plot([_series(1), _series(2)], PlotOptions("x")),
        draw_bar(2, "x"),
    ):
        assert "style=" not in drawn


def test_nothing_at_all_can_be_drawn() -> None:
    for drawn in (
        draw_line_plot([], PlotOptions("x")),
        draw_line_plot([_series()], PlotOptions("x")),
        draw_stacked_plot([], PlotOptions("x")),
        draw_sparkline([], "x"),
    ):
        ElementTree.fromstring(drawn)


def test_a_legend_escapes_names() -> None:
    assert "<0>" not in draw_legend([_series(1)])


def test_a_legend_names_the_dashed_line_where_there_is_one() -> None:
    assert "capacity" in draw_legend([_series(1)], "capacity")
    assert "limit" not in draw_legend([_series(1)])


@given(st.floats(1e-6, 1e12))
def test_ticks_are_few_start_at_nothing_and_reach_the_top(top: float) -> None:
    ticks = number_axis_ticks(top)
    assert ticks[0] == 0
    assert ticks[-1] >= top * (1 - 1e-6)
    assert 2 <= len(ticks) <= 6


@given(st.integers(0, 2_000_000_000), st.integers(60, 400_000_000))
def test_times_on_the_axis_are_few_and_inside(start: int, length: int) -> None:
    ticks = time_axis_ticks(start, start + length)
    assert len(ticks) <= 8
    assert all(start <= at.timestamp() <= start + length for at, _, _ in ticks)
