"""What the local engine promises beyond the contract: each attempt has its own wrapper and its own cgroup."""

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from contract import ENGINES, Bench

from heliostat.engines.local import launch
from heliostat.models import Attempt, AttemptEnded, AttemptStarted, EndCause, Observation


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(ENGINES["local"](tmp_path), tmp_path)
    yield bench
    bench.tear_down()


def wait_for_claim(bench: Bench, attempt: Attempt) -> int:
    """The pid of its wrapper."""
    trace = bench.folder / "home" / "attempts" / f"{attempt.id}.started"
    bench.wait_until(lambda: trace.exists() and bool(trace.read_text()), "its wrapper has claimed it")
    return int(trace.read_text().split()[0])


def group_names(bench: Bench) -> list[str]:
    return sorted(bench.engine._groups.names())  # type: ignore[attr-defined]


@pytest.mark.parametrize("limit", [None, 600])
def test_an_attempt_that_has_stopped_its_own_wrapper_can_be_stopped(bench: Bench, limit: int | None) -> None:
    attempt = bench.stopping_itself(limit)
    bench.start(attempt)
    bench.wait_for_start(attempt)
    bench.engine.stop(attempt, 0)
    assert bench.wait_for_end(attempt).cause is EndCause.STOPPED


def test_an_attempt_whose_wrapper_was_killed_is_lost_and_leaves_no_group(bench: Bench) -> None:
    attempt = bench.running_long()
    bench.start(attempt)
    bench.wait_for_start(attempt)
    os.kill(wait_for_claim(bench, attempt), signal.SIGKILL)
    assert bench.wait_for_end(attempt).cause is EndCause.LOST
    assert group_names(bench) == []


def test_each_attempt_has_its_own_group_which_goes_with_all_that_is_in_it(bench: Bench) -> None:
    first, second = bench.running_long(), bench.running_long()
    bench.start(first, second)
    for attempt in (first, second):
        bench.wait_for_start(attempt)
    if group_names(bench):  # unless the machine has no cgroups
        assert group_names(bench) == sorted([first.id, second.id])
    leaving = bench.leaving_something()
    bench.start(leaving)
    assert bench.wait_for_end(leaving).exit_code == 0
    assert leaving.id not in group_names(bench)


def test_a_start_that_fails_leaves_neither_a_group_nor_a_watch_of_its_log(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("no process can be started, says the test")

    monkeypatch.setattr(launch, "spawn_program", fail)
    attempt = bench.finishing()
    bench.start(attempt)
    end = bench.wait_for_end(attempt)
    assert end.cause is EndCause.NOT_STARTED
    assert "says the test" in (end.detail or "")
    assert bench.engine._supervision._log_order._numbers == {}  # type: ignore[attr-defined]
    assert group_names(bench) == []


def test_after_a_restart_a_start_and_an_end_that_were_not_recorded_are_known_and_other_groups_are_removed(
    bench: Bench,
) -> None:
    ended, running = bench.finishing(3), bench.running_long()
    bench.engine.set_observation_callback(lambda seen: None)  # type: ignore[attr-defined] # the server dies before it records anything
    bench.engine.start([ended, running])
    trace = bench.folder / "home" / "attempts" / f"{ended.id}.started"
    wait_for_claim(bench, running)
    bench.wait_until(lambda: trace.exists() and trace.read_text().endswith("003\n"), "its end is on disk")
    bench.restart()
    started, end, running_on = bench.engine.observe([ended, running])
    bench.engine.forget_all_except([ended.id, running.id])
    assert (started.attempt_id, end.attempt_id, running_on.attempt_id) == (ended.id, ended.id, running.id)
    assert isinstance(started, AttemptStarted)
    assert isinstance(end, AttemptEnded)
    assert started.at <= end.at
    assert end.exit_code == 3
    assert ended.id not in group_names(bench)
    bench.engine.stop(running, 0)
    assert bench.wait_for_end(running).cause is EndCause.STOPPED


def test_an_attempt_that_is_killed_before_its_payload_has_entered_its_group_does_not_survive(bench: Bench) -> None:
    attempts = [bench.ignoring_term() for _ in range(5)]
    report = bench.engine._report  # type: ignore[attr-defined]

    def stop_at_once(seen: Sequence[Observation]) -> None:
        report(seen)
        for one in seen:
            if isinstance(one, AttemptStarted):
                bench.engine.stop(next(attempt for attempt in attempts if attempt.id == one.attempt_id), 0)

    bench.engine.set_observation_callback(stop_at_once)  # type: ignore[attr-defined]
    bench.start(*attempts)
    assert {bench.wait_for_end(attempt).cause for attempt in attempts} == {EndCause.STOPPED}


def test_old_traces_are_swept_however_many_files_each_attempt_has_left(bench: Bench) -> None:
    folder = bench.folder / "home" / "attempts"
    for name in (
        "1.1.started",
        "1.1.timed_out",
        "1.1.limit",
        "2.1.started",
        "2.1.payload",
        "3.1.started",
        "3.1.limit",
    ):
        (folder / name).touch()
        os.utime(folder / name, (0, 0))
    (folder / "4.1.started").touch()
    bench.engine.forget_all_except(["3.1"])
    assert sorted(path.name for path in folder.iterdir()) == ["3.1.limit", "3.1.started", "4.1.started"]
