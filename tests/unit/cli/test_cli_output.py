import pytest

from heliostat.cli.output import STATE_STYLES, Column, fit_columns, rich_table
from heliostat.cli.value_format import format_duration, format_mib, format_time, seconds_between
from heliostat.models import JobState, NodeState


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0s"), (0.42, "0.4s"), (42, "42s"), (185, "3m05s"), (7620, "2h07m"), (442800, "5d03h")],
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("mib", "text"), [(None, "-"), (512, "512M"), (16384, "16G"), (1536 * 1024, "1.5T")])
def test_sizes(mib, text):
    assert format_mib(mib) == text


def test_every_state_has_its_icon_and_colour():
    assert {*JobState, *NodeState} <= STATE_STYLES.keys()
    looks = [STATE_STYLES[state] for state in JobState]
    assert len(set(looks)) == len(looks)


COLUMNS = (
    Column("ID"),
    Column("NAME", shrinkable=True),
    Column("CPUS", optional=True),
    Column("WHY", shrinkable=True),
)


def test_a_wide_terminal_shows_all():
    assert fit_columns(COLUMNS, [2, 40, 4, 60], 200) == {0: 2, 1: 40, 2: 4, 3: 60}


def test_names_and_reasons_give_way_first():
    widths = fit_columns(COLUMNS, [2, 40, 4, 60], 60)
    assert sum(widths.values()) + 2 * len(widths) <= 60
    assert (widths[0], widths[2]) == (2, 4)


def test_then_what_one_can_do_without():
    assert 2 not in fit_columns(COLUMNS, [2, 40, 4, 60], 45)


def test_a_short_name_leaves_its_room_to_the_reason():
    assert fit_columns(COLUMNS, [2, 5, 4, 60], 60)[3] == 60 - 2 - 5 - 4 - 8


PLACES = (Column("ID"), Column("NODE", optional=True, merges_into="WHY"), Column("WHY", shrinkable=True))
PLACED = [["1", "n01", ""], ["2", "-", "needs 4 GPUs on one node"], ["3", "n02", "being stopped"]]


def shown(columns, rows, width):
    from rich.console import Console

    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(rich_table(columns, rows, width))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_column_without_room_is_said_in_another():
    assert shown(PLACES, PLACED, 24) == [
        "ID  NODE, WHY",
        "1   n01",
        "2   needs 4 GPUs on o…",
        "3   n02; being stopped",
    ]
    assert shown(PLACES, PLACED, 60)[0] == "ID  NODE  WHY"


def test_times_are_read_as_the_server_writes_them():
    assert seconds_between("2026-01-02T03:04:05Z", "2026-01-02T03:05:05.5Z") == 60.5
    assert seconds_between(None) is None
    assert format_time("2020-01-02T03:04:05Z").startswith("2020-01-0")
