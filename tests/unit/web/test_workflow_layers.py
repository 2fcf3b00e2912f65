"""Graphs of workflows, laid out in layers and drawn."""

import random
from datetime import UTC, datetime, timedelta
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as some

from heliostat.web.workflow_page.graph_layout import (
    MAX_BOXES_PER_LAYER,
    MAX_LAYERS,
    GraphLayout,
    StepBox,
    layout_graph,
)
from heliostat.web.workflow_page.svg_drawing import BoxLabel, GanttBar, draw_gantt, draw_graph

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def graphs() -> some.SearchStrategy[dict[str, list[str]]]:
    numbers = some.lists(some.lists(some.integers(0, 40), max_size=4), min_size=1, max_size=40)
    return numbers.map(
        lambda rows: {f"n{at}": sorted({f"n{one % at}" for one in row if at}) for at, row in enumerate(rows)}
    )


def overlap(one: StepBox, other: StepBox) -> bool:
    across = one.x < other.x + other.width and other.x < one.x + one.width
    down = one.y < other.y + other.height and other.y < one.y + one.height
    return across and down


def check(needs: dict[str, list[str]], drawing: GraphLayout) -> None:
    names = [name for box in drawing.boxes for name in box.step_names]
    assert sorted(names) == sorted(needs)
    assert not any(overlap(one, other) for one, other in combinations(drawing.boxes, 2))
    for one, other in drawing.edges:
        assert drawing.boxes[one].x + drawing.boxes[one].width < drawing.boxes[other].x, "leads to the right"
    for box in drawing.boxes:
        assert 0 <= box.x <= drawing.width - box.width
        assert 0 <= box.y <= drawing.height - box.height


@given(graphs())
def test_no_two_boxes_overlap_and_every_line_leads_to_the_right(needs: dict[str, list[str]]) -> None:
    drawing = layout_graph(needs)
    check(needs, drawing)
    assert layout_graph(needs) == drawing


@given(graphs())
def test_every_need_is_a_line_unless_both_share_a_box(needs: dict[str, list[str]]) -> None:
    drawing = layout_graph(needs)
    where = {name: place for place, box in enumerate(drawing.boxes) for name in box.step_names}
    wanted = {(where[parent], where[name]) for name, parents in needs.items() for parent in parents}
    assert set(drawing.edges) == {(one, other) for one, other in wanted if one != other}


def test_a_wide_layer_gets_a_box_for_the_rest() -> None:
    needs = {"a": [], **{f"b{at}": ["a"] for at in range(4998)}, "c": [f"b{at}" for at in range(4998)]}
    drawing = layout_graph(needs)
    check(needs, drawing)
    assert len(drawing.boxes) == MAX_BOXES_PER_LAYER + 2
    assert max(len(box.step_names) for box in drawing.boxes) == 4998 - MAX_BOXES_PER_LAYER + 1


def test_a_long_chain_is_drawn_in_few_boxes() -> None:
    needs = {f"n{at}": [f"n{at - 1}"] if at else [] for at in range(5000)}
    drawing = layout_graph(needs)
    check(needs, drawing)
    assert len(drawing.boxes) == MAX_LAYERS


def test_five_thousand_jobs_at_random_stay_a_few_hundred_boxes() -> None:
    chance = random.Random(3)
    needs = {f"n{at}": [f"n{chance.randrange(at)}" for _ in range(2)] if at else [] for at in range(5000)}
    drawing = layout_graph(needs)
    check(needs, drawing)
    assert len(drawing.boxes) <= MAX_LAYERS * MAX_BOXES_PER_LAYER


def test_order_within_layers_keeps_lines_from_crossing_where_that_is_easy() -> None:
    needs: dict[str, list[str]] = {"a": [], "b": [], "y": ["b"], "x": ["a"]}
    boxes = {box.step_names[0]: box for box in layout_graph(needs).boxes}
    assert (boxes["a"].y < boxes["b"].y) == (boxes["x"].y < boxes["y"].y)


def test_names_in_the_drawing_are_text_and_nothing_else() -> None:
    nasty = '<script>"&'
    drawn = draw_graph(
        layout_graph({nasty: []}), [BoxLabel(nasty, nasty, "running", f"/jobs/1?{nasty}", 0.5)], nasty
    )
    assert "<script>" not in drawn
    assert "step-running" in drawn
    bars = draw_gantt([GanttBar(nasty, "failed", "/jobs/1", NOW, None, nasty)], NOW, nasty)
    assert "<script>" not in bars


def test_bars_stay_inside_and_those_who_have_not_started_have_none() -> None:
    started = [NOW, NOW + timedelta(minutes=5), None]
    ended = [NOW + timedelta(minutes=5), None, None]
    pairs = zip(started, ended, strict=True)
    bars = [GanttBar(f"b{at}", "running", "/", *times, "x") for at, times in enumerate(pairs)]
    drawn = str(draw_gantt(bars, NOW + timedelta(minutes=10), "t"))
    assert drawn.count('class="run') == 2
    assert drawn.count("<a ") == 3
    assert draw_gantt([], NOW, "none")


def test_an_empty_graph_is_an_empty_drawing() -> None:
    assert layout_graph({}).boxes == ()
