import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliostat.models.quantities import MAX_ARRAY_SIZE, parse_array, parse_duration, parse_memory

HOSTILE = ["", " ", "\0", "1\n2", "-1", "+1", "0x10", "1e9", "NaN", "inf", "1_0", "\u0661", "\u00b2", "\ud800"]
HOSTILE += [
    "1K",
    "1X",
    "G",
    ".5G",
    "1.G",
    "1..5G",
    "1,5G",
    "\u202e1G",
    "1G\u200b",
    "16 G B",
    "'1'",
    "1;2",
    "$(id)",
]


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512),
        ("512M", 512),
        ("16G", 16384),
        ("16g", 16384),
        ("16GB", 16384),
        ("16 GiB", 16384),
        ("1.5T", 1572864),
    ],
)
def test_memory_is_written_as_people_do(text: str, mib: int) -> None:
    assert parse_memory(text) == mib


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90s", 90),
        ("30m", 1800),
        ("4h", 14400),
        ("1d12h", 129600),
        ("1d 12h", 129600),
        ("2W", 1209600),
        ("1:30", 5400),
        ("1:30:05", 5405),
        ("2-00:00:00", 172800),
    ],
)
def test_a_duration_is_written_as_people_do(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "indexes", "limit"),
    [("0-3", (0, 1, 2, 3), None), ("7", (7,), None), ("1,3,5-6%2", (1, 3, 5, 6), 2), (" 0 , 2 ", (0, 2), None)],
)
def test_an_array_is_written_like_slurms(text: str, indexes: tuple[int, ...], limit: int | None) -> None:
    assert (parse_array(text).indexes, parse_array(text).limit) == (indexes, limit)


@pytest.mark.parametrize("parse", [parse_memory, parse_duration, parse_array])
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_anything_else_is_an_error_that_shows_how_to_write_it(parse, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=r"write|index|once"):
        parse(text)


@given(st.text(max_size=40) | st.text("0123456789-:,%.smhdwMGTiB \t\n", max_size=40))
@example("0-9" * 10)
def test_no_text_raises_anything_but_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert parse_memory(text) >= 0
    with suppress(ValueError):
        assert parse_duration(text) >= 0
    if "-" in text:
        return  # see the tests of long ranges
    with suppress(ValueError):
        assert 1 <= len(parse_array(text).indexes) <= MAX_ARRAY_SIZE


@given(st.integers(0, 10**9), st.sampled_from(["M", "G", "T"]))
def test_memory_comes_back_as_it_was_written(number: int, unit: str) -> None:
    assert parse_memory(f"{number}{unit}") == number * {"M": 1, "G": 2**10, "T": 2**20}[unit]


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_all_ways_to_write_a_duration_mean_the_same(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert parse_duration(f"{days}-{hours}:{minutes:02}:{seconds:02}") == total
    assert parse_duration(f"{days}d{hours}h{minutes}m{seconds}s") == total


@given(st.sets(st.integers(0, 10**9 - 1), min_size=1, max_size=50), st.none() | st.integers(1, 99))
def test_an_array_comes_back_as_it_was_written(indexes: set[int], limit: int | None) -> None:
    text = ",".join(map(str, indexes)) + (f"%{limit}" if limit else "")
    made = parse_array(text)
    assert (set(made.indexes), made.limit) == (indexes, limit)


def test_an_array_has_at_most_ten_thousand_elements() -> None:
    assert len(parse_array(f"1-{MAX_ARRAY_SIZE}").indexes) == MAX_ARRAY_SIZE
    with pytest.raises(ValueError, match="10000 elements"):
        parse_array(f"0-{MAX_ARRAY_SIZE}")
    with pytest.raises(ValueError, match="twice"):
        parse_array("1,2,1")


def test_a_range_that_is_too_long_is_refused_before_it_is_made() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="10000 elements"):
            parse_array("0-4999999")
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 1_000_000


@pytest.mark.parametrize("text", ["5", " 90 ", "1" * 50])
def test_a_duration_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"{text.strip()} has no unit; write {text.strip()}m"):
        parse_duration(text)


def test_a_long_text_costs_no_more_than_reading_it() -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration("1s" + "1" * 1_000_000)  # whose square would take hours
