import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import DependencyCondition, JobState, ParentReference
from heliostat.models.dependencies import find_cycle, format_begin, parse_begin, parse_parents
from heliostat.models.states import TERMINAL_STATES

graphs = st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=3), max_size=8)


@pytest.mark.parametrize("state", JobState)
def test_each_rule_is_met_by_the_ends_it_names_and_by_no_state_before(state: JobState) -> None:
    met = {rule for rule in DependencyCondition if rule.is_met_by(state)}
    if state not in TERMINAL_STATES:
        assert met == set()
    else:
        others = (
            {DependencyCondition.OK, DependencyCondition.BUILT}
            if state is JobState.COMPLETED
            else {DependencyCondition.FAILED}
        )
        assert met == {DependencyCondition.ANY, DependencyCondition.WORKFLOW_DECIDES} | others


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (12, ("12",)),
        ("12", ("12",)),
        ("12, 13,012", ("12", "13")),
        ([12, "array:5", "prepare data"], ("12", "array:5", "prepare data")),
        ("prepare", ("prepare",)),
        ([], ()),
    ],
)
def test_parents_are_read_as_people_write_them(written: object, read: tuple[str, ...]) -> None:
    assert parse_parents(written) == read


@pytest.mark.parametrize(
    "wrong", [None, True, "", "12,", [None], [[1]], 0, "array:", "array:x", "9" * 20, 1.5, "a\nb"]
)
def test_what_is_no_reference_is_refused_in_words(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        parse_parents(wrong)


def test_a_reference_is_a_job_an_array_or_a_name() -> None:
    assert (ParentReference("12").job_id, ParentReference("12").array_id) == (12, None)
    assert (ParentReference("array:5").job_id, ParentReference("array:5").array_id) == (None, 5)
    assert (ParentReference("prep").job_id, ParentReference("prep").array_id) == (None, None)


def test_a_time_to_begin_is_a_moment_or_an_interval() -> None:
    assert parse_begin("+2h") == timedelta(hours=2)
    assert parse_begin("2026-12-01T08:00") == datetime(2026, 12, 1, 8, tzinfo=UTC)
    assert parse_begin("2026-12-01T08:00+02:00") == datetime(2026, 12, 1, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    "wrong", ["", "+", "tomorrow", "+2x", "0001-01-01T00:00", "9999-12-31T23:59-12:00", "+9999w"]
)
def test_what_is_no_time_is_refused_in_words(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        parse_begin(wrong)


@given(
    st.timedeltas(timedelta(0), timedelta(days=3000)) | st.datetimes(datetime(2001, 1, 1), datetime(2199, 1, 1))
)
def test_a_time_to_begin_is_written_as_it_is_read(begin: datetime | timedelta) -> None:
    if isinstance(begin, datetime):
        begin = begin.replace(tzinfo=UTC)
    else:
        begin = timedelta(seconds=int(begin.total_seconds()))
    assert parse_begin(format_begin(begin)) == begin


@given(graphs)
def test_a_cycle_is_found_exactly_where_there_is_one(graph: dict[int, list[int]]) -> None:
    cycle = find_cycle(graph)
    if cycle is None:
        left = {node: set(parents) for node, parents in graph.items()}
        while free := [node for node, parents in left.items() if not parents & left.keys()]:
            for node in free:
                del left[node]
        assert not left
    else:
        assert len(cycle) > 1
        assert cycle[0] == cycle[-1]
        assert all(after in graph[before] for before, after in itertools.pairwise(cycle))


def test_a_very_long_chain_is_no_trouble() -> None:
    chain = {number: [number + 1] for number in range(100_000)}
    assert find_cycle(chain) is None
    assert len(find_cycle({**chain, 100_000: [0]}) or []) == 100_002
