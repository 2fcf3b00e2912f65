"""One writer for everybody: what is refused leaves no trace, what is answered is on disk."""

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import select, text

from heliostat.errors import Conflict, StoreUnavailable
from heliostat.models import JobSpec
from heliostat.store import job_writes, schema
from heliostat.store import jobs as stored
from heliostat.store.database import Store, StoreChanges, Transaction
from support.new_database import create_database
from unit.store.made_up import a_job, add_people


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create_database(tmp_path / "heliostat.db")
    return tmp_path / "heliostat.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store(path)
    store.write(add_people)
    yield store
    store.close()


def submit(tx: Transaction) -> int:
    number = tx.ids.allocate("jobs")[0]
    job_writes.add_jobs(tx, [a_job(number)])
    return number


def submit_and_fail(tx: Transaction) -> int:
    submit(tx)
    raise Conflict("no")


def numbers(store: Store) -> list[int]:
    with store.read() as conn:
        return sorted(conn.execute(select(schema.jobs.c.id)).scalars())


class HeldUp:
    """The writer waits, so that what is ordered meanwhile is carried out together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reached, self._go_on = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        self._order = self._store.submit_write(lambda tx: (self._reached.set(), self._go_on.wait(120)))
        assert self._reached.wait(120)

    def __exit__(self, *error: object) -> None:
        self._go_on.set()
        self._order.result(120)


def outcome(future: "Future[int]") -> int | str:
    try:
        return future.result(120)
    except Conflict as error:
        return error.message


def test_a_change_that_fails_keeps_nothing_and_is_told_to_nobody(store: Store) -> None:
    told: list[StoreChanges] = []
    store.on_commit(told.append)
    with pytest.raises(Conflict):
        store.write(submit_and_fail)
    assert numbers(store) == []
    assert all(not (changes.added_jobs or changes.changed_jobs or changes.events) for changes in told)
    with store.read() as conn:
        assert stored.last_event_id(conn) == 0
    assert store.write(submit) == 1, "what is refused uses up no number"


def test_among_many_in_one_commit_a_failing_change_leaves_the_others_alone(store: Store) -> None:
    told: list[StoreChanges] = []
    store.on_commit(told.append)
    with HeldUp(store):
        futures = [store.submit_write(submit_and_fail if number % 3 == 1 else submit) for number in range(9)]
    outcomes = [outcome(future) for future in futures]
    kept = [number for number in outcomes if isinstance(number, int)]
    assert [isinstance(found, str) for found in outcomes] == [number % 3 == 1 for number in range(9)]
    assert numbers(store) == sorted(kept)
    assert kept == [1, 2, 3, 4, 5, 6], "what is refused uses up no number"
    assert [job.id for changes in told for job in changes.added_jobs] == kept


def test_a_broken_rule_of_the_database_is_the_fault_of_that_change_only(store: Store) -> None:
    def stranger(tx: Transaction) -> int:
        number = tx.ids.allocate("jobs")[0]
        job_writes.add_jobs(tx, [a_job(number, user="nobody")])
        return number

    with HeldUp(store):
        futures = [store.submit_write(change) for change in (submit, stranger, submit)]
    kept = [futures[0].result(120), futures[2].result(120)]
    assert isinstance(futures[1].exception(10), Exception)
    assert numbers(store) == sorted(kept)


def test_twenty_threads_get_numbers_of_their_own_and_all_is_there(store: Store) -> None:
    with ThreadPoolExecutor(20) as threads:
        futures = [threads.submit(store.write, submit if number % 5 else submit_and_fail) for number in range(200)]
    kept = [found for found in map(outcome, futures) if isinstance(found, int)]
    assert len(kept) == 160
    assert numbers(store) == sorted(set(kept))
    with store.read() as conn:
        events = stored.list_events(conn, 0, 1000)
    assert [event.job_id for event in events] == sorted(kept)


def test_a_reader_sees_all_of_a_commit_or_nothing(store: Store) -> None:
    seen: list[int] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.append(len(numbers(store)))

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(20):
        store.write(lambda tx: [submit(tx) for _ in range(10)])
    stop.set()
    reader.join(120)
    assert all(count % 10 == 0 for count in seen)
    assert seen == sorted(seen)


def test_what_was_answered_is_in_the_file_and_numbers_go_on_after_a_restart(store: Store, path: Path) -> None:
    last = [store.write(submit) for _ in range(3)][-1]
    with sqlite3.connect(path) as other:
        assert other.execute("select count(*) from jobs").fetchone() == (3,)
    other.close()
    again = Store(path)
    assert again.write(submit) == last + 1
    again.close()


def test_a_listener_that_fails_stops_neither_the_others_nor_the_answer(store: Store) -> None:
    told: list[StoreChanges] = []

    def broken(changes: StoreChanges) -> None:
        raise RuntimeError("no")

    store.on_commit(broken)
    store.on_commit(told.append)
    assert store.write(submit) == 1
    assert [job.id for job in told[0].added_jobs] == [1]


def test_listeners_hear_of_a_change_before_its_caller_is_answered(store: Store) -> None:
    told: list[int] = []
    store.on_commit(lambda changes: told.extend(job.id for job in changes.added_jobs))
    for _ in range(50):
        assert store.write(submit) in told


def test_closing_answers_what_was_ordered_before(path: Path) -> None:
    store = Store(path)
    store.write(add_people)
    with HeldUp(store):
        futures = [store.submit_write(submit) for _ in range(600)]
        closing = threading.Thread(target=store.close)
        closing.start()
    closing.join(120)
    assert [future.done() and future.result(0) for future in futures] == list(range(1, 601))


def test_the_database_is_written_through_to_the_disk(store: Store) -> None:
    def settings(tx: Transaction) -> tuple[object, ...]:
        return tuple(
            tx.conn.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        )

    assert store.write(settings) == ("wal", 2, 1)


def _fill_the_disk(tx: Transaction) -> None:
    pages = tx.conn.execute(text("PRAGMA page_count")).scalar()
    tx.conn.execute(text(f"PRAGMA max_page_count = {pages}"))


def _much(tx: Transaction) -> int:
    number = tx.ids.allocate("jobs")[0]
    job_writes.add_jobs(tx, [a_job(number, spec=JobSpec(script="x" * 200_000))])
    return number


def test_a_full_disk_is_said_as_such_and_works_again_when_there_is_room(store: Store) -> None:
    store.write(_fill_the_disk)
    with pytest.raises(StoreUnavailable) as raised:
        store.write(_much)
    assert "Free space" in (raised.value.hint or "")
    store.write(lambda tx: tx.conn.execute(text("PRAGMA max_page_count = 1000000")))
    assert store.write(_much) > 0


def test_a_full_disk_refuses_all_of_a_commit_in_the_same_words(store: Store) -> None:
    store.write(_fill_the_disk)
    with HeldUp(store):
        futures = [store.submit_write(_much) for _ in range(3)]
    assert all(isinstance(future.exception(120), StoreUnavailable) for future in futures)
    assert numbers(store) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_caller_who_no_longer_waits_does_not_stop_the_writer(store: Store) -> None:
    with HeldUp(store):
        given_up = store.submit_write(submit)
        assert given_up.cancel()
        waited_for = store.submit_write(submit)
    assert waited_for.result(120) > 0, "the writer has died of an answer nobody waited for"
