"""The file of samples: what is written is read, what is old is rolled up, what breaks harms nobody."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from heliostat.store.sample_chunks import SampleChunk
from heliostat.store.samples import DAY, HOUR, SampleRetention, SampleStore

START = 1_790_000_000 // (30 * DAY) * 30 * DAY
Make = Callable[..., SampleStore]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[SampleStore] = []

    def new(step: int = 10, max_rolled_up: int = 500, **kept: float) -> SampleStore:
        made.append(
            SampleStore(tmp_path / "samples.db", step, SampleRetention(**kept), max_rolled_up=max_rolled_up)
        )
        return made[-1]

    yield new
    for store in made:
        store.close()


def values_of(store: SampleStore, subject: str = "job/1", column: int = 0) -> list[float]:
    chunks = sorted(store.read(subject, 0, 1e12), key=lambda chunk: chunk.first)
    return [value for chunk in chunks for value in chunk.mean[:, column].tolist()]


def steps(store: SampleStore, subject: str = "job/1") -> set[int]:
    return {chunk.step for chunk in store.read(subject, 0, 1e12)}


def fill(store: SampleStore, hours: int, start: int = START, value: float = 2.0) -> None:
    for at in range(start, start + hours * HOUR, store.step_seconds):
        store.add(at, {"job/1": [value, 100.0]})
        if at % HOUR == 0:
            store.flush(at)
    store.flush(start + hours * HOUR)
    store.flush(start + hours * HOUR)  # what has come to an end leaves the memory


def test_a_sample_can_be_read_before_and_after_it_is_written(make: Make) -> None:
    store = make()
    store.add(START, {"job/1": [1.0, None]})
    assert values_of(store) == [1.0]
    store.flush(START)
    assert values_of(store) == [1.0]
    store.add(START + 10, {"job/1": [2.0, None]})
    assert values_of(store) == [1.0, 2.0]
    assert np.isnan(values_of(store, column=1)).all()


def test_a_new_server_goes_on_in_the_same_hour(make: Make) -> None:
    first = make()
    first.add(START + 60, {"job/1": [1.0]})
    first.flush(START + 60)
    first.close()
    second = make()
    second.add(START + 90, {"job/1": [4.0]})
    second.flush(START + 90)
    np.testing.assert_array_equal(values_of(second), [1.0, np.nan, np.nan, 4.0])


def test_a_subject_that_pauses_goes_on_where_it_was(make: Make) -> None:
    store = make()
    store.add(START, {"job/1": [1.0]})
    for _ in range(3):
        store.flush(START)  # by now nothing of it is in memory
    store.add(START + 20, {"job/1": [3.0]})
    store.flush(START + 20)
    np.testing.assert_array_equal(values_of(store), [1.0, np.nan, 3.0])


def test_an_attempt_with_more_devices_widens_what_was_there(make: Make) -> None:
    store = make()
    store.add(START, {"job/1": [1.0]})
    store.add(START + 10, {"job/1": [2.0, 50.0]})
    store.add(START + 20, {"job/1": [3.0]})
    np.testing.assert_array_equal(values_of(store, column=1), [np.nan, 50.0, np.nan])
    assert values_of(store) == [1.0, 2.0, 3.0]


def test_two_looks_in_one_step_and_a_clock_set_back_change_nothing(make: Make) -> None:
    store = make()
    for at, value in ((START + 20, 1.0), (START + 25, 9.0), (START + 5, 9.0), (START + 30, 2.0)):
        store.add(at, {"job/1": [value]})
    assert values_of(store) == [1.0, 2.0]


def test_only_what_was_asked_for_is_read(make: Make) -> None:
    store = make()
    fill(store, 3)
    assert {chunk.first for chunk in store.read("job/1", START + HOUR, START + HOUR + 60)} == {START + HOUR}
    assert store.read("job/2", 0, 1e12) == []


def test_what_is_old_is_rolled_up_once_and_keeps_mean_and_largest(make: Make) -> None:
    store = make()
    fill(store, 2)
    store.add(START + 2 * HOUR, {"job/1": [80.0, 100.0]})
    store.flush(START + 2 * HOUR)
    store.flush(START + 3 * HOUR)
    assert not store.compact(START + DAY)
    assert steps(store) == {10}
    store.compact(START + DAY + 3 * HOUR)
    assert steps(store) == {300}
    [day] = store.read("job/1", 0, 1e12)
    assert day.mean[:24, 0].tolist() == [2.0] * 24
    assert (day.mean[24, 0], day.max[24, 0], len(day.mean)) == (80.0, 80.0, 25)
    store.compact(START + 33 * DAY)
    [hours] = store.read("job/1", 0, 1e12)
    assert (hours.step, hours.mean[:, 0].tolist()) == (HOUR, [2.0, 2.0, 80.0])


def test_what_is_very_old_is_dropped(make: Make) -> None:
    store = make(hourly_days=90)
    fill(store, 1)
    store.compact(START + 2 * DAY)
    store.compact(START + 40 * DAY)
    assert steps(store) == {HOUR}
    store.compact(START + 200 * DAY)
    assert store.read("job/1", 0, 1e12) == []


def test_rolling_up_in_parts_gives_the_same(make: Make) -> None:
    store = make(max_rolled_up=2)
    fill(store, 5)
    rounds = 1
    while store.compact(START + 3 * DAY):
        rounds += 1
    assert rounds == 3
    assert values_of(store) == [2.0] * 60


def test_a_past_over_several_rows_can_be_put_in(make: Make) -> None:
    store = make()
    past = np.arange(3 * 288, dtype=float).reshape(-1, 1)
    store.add_history({"cluster": SampleChunk(START, 300, past, past + 1)})
    chunks = store.read("cluster", 0, 1e12)
    assert len(chunks) == 3
    assert sum(len(chunk.mean) for chunk in chunks) == 3 * 288


def test_another_step_does_not_disturb_what_was_kept_with_the_old_one(make: Make) -> None:
    first = make(10)
    first.add(START, {"job/1": [1.0]})
    first.flush(START)
    first.close()
    second = make(30)
    second.add(START + 30, {"job/1": [2.0]})
    assert sorted(values_of(second)) == [1.0, 2.0]
    assert steps(second) == {10, 30}


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_cannot_be_read_is_begun_anew_with_a_word(make: Make, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "samples.db").write_bytes(content)
    with capture_logs() as logs:
        store = make()
        store.add(START, {"job/1": [1.0]})
        store.flush(START)
    assert [entry["event"] for entry in logs] == ["samples_file_replaced"]
    store.close()
    assert values_of(make()) == [1.0]


def test_a_file_of_another_version_is_begun_anew(make: Make, tmp_path: Path) -> None:
    conn = sqlite3.connect(tmp_path / "samples.db")
    conn.execute("PRAGMA user_version = 99")
    conn.execute("CREATE TABLE chunks (a)")
    conn.close()
    store = make()
    store.add(START, {"job/1": [1.0]})
    store.flush(START)
    store.close()
    assert values_of(make()) == [1.0]


def test_a_disk_without_room_loses_samples_says_so_once_and_goes_on_later(make: Make, tmp_path: Path) -> None:
    blocked = SampleStore(tmp_path / "missing" / "samples.db")
    with capture_logs() as logs:
        for hour in range(5):
            for second in range(0, 60, 10):
                blocked.add(START + hour * HOUR + second, {"job/1": [1.0]})
            blocked.flush(START + hour * HOUR)
            blocked.compact(START)
    assert [entry["event"] for entry in logs] == ["samples_not_written"]
    assert 0 < len(values_of(blocked)) <= 3 * 6
    (tmp_path / "missing").mkdir()
    blocked.flush(START + 5 * HOUR)
    blocked.close()
    again = SampleStore(tmp_path / "missing" / "samples.db")
    assert values_of(again)
    again.close()


def test_a_file_that_was_deleted_is_begun_anew_with_a_word(make: Make, tmp_path: Path) -> None:
    store = make()
    store.add(START, {"job/1": [1.0]})
    store.flush(START)
    for file in tmp_path.iterdir():
        file.unlink()
    with capture_logs() as logs:
        store.add(START + 10, {"job/1": [2.0]})
        store.flush(START + 10)
    assert [entry["event"] for entry in logs] == ["samples_file_replaced"]
    store.close()
    assert values_of(make()) == [1.0, 2.0]


def test_a_scan_finds_the_subjects_with_a_prefix(make: Make) -> None:
    store = make()
    store.add(START, {"job-power/1": [50.0], "job-power/12": [60.0], "job/1": [1.0]})
    store.add(START + 2 * HOUR, {"job-power/2": [80.0]})
    store.flush(START)
    found = {
        subject: chunk.mean[:, 0].tolist() for subject, chunk in store.scan("job-power/", START, START + HOUR)
    }
    assert found == {"job-power/1": [50.0], "job-power/12": [60.0]}
    assert {subject for subject, _ in store.scan("job/", 0, 1e12)} == {"job/1"}
