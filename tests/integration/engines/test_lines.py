"""Attempts that stand behind others, in an engine that lets them, and the groups they use one after the other."""

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract import ENGINES, Bench

from heliostat.engines.contract import TakesSamples
from heliostat.engines.folders import JobFolder
from heliostat.engines.local import launch
from heliostat.engines.local import supervision as supervision_module
from heliostat.engines.local.cgroups import Limits
from heliostat.engines.local.scripts import Script, Scripts
from heliostat.engines.local.trace import Traces
from heliostat.engines.local.wrappers import Order, Wrapper
from heliostat.models import Attempt, Cause, Ended, JobState, Resources, Started


@pytest.fixture(params=["local"])  # those that let attempts stand behind others
def line(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(ENGINES[request.param](tmp_path), tmp_path)
    assert bench.engine.capabilities.lines_up
    yield bench
    bench.tear_down()


def behind(first: Attempt, *others: Attempt) -> list[Attempt]:
    """Each behind the one before it, as it is handed to an engine."""
    lined_up = []
    for attempt in others:
        job = replace(attempt.job, state=JobState.PENDING, handed_over=True)
        lined_up.append(replace(attempt, job=job, behind=first.id))
        first = attempt
    return lined_up


def test_who_stands_behind_another_starts_in_its_place_and_not_before(line: Bench) -> None:
    first, second, third = line.until_let_go(), line.finishing(3), line.finishing(4)
    line.start(first, *behind(first, second, third))
    line.wait_for_start(first)
    line.let_another_one_finish()
    assert line.reports_of(second) == line.reports_of(third) == []
    line.let_go(first)
    assert [line.wait_for_end(one).exit_code for one in (first, second, third)][1:] == [3, 4]
    kinds = [(report.attempt_id, type(report)) for report in line.reports]
    for before, after in ((first, second), (second, third)):
        assert kinds.count((after.id, Started)) == kinds.count((after.id, Ended)) == 1
        assert kinds.index((after.id, Started)) < kinds.index((before.id, Ended))
    assert line.reports_of(third)[0].places[0].node == first.node  # type: ignore[union-attr]


def test_whoever_stands_behind_one_that_is_gone_starts_at_once(line: Bench) -> None:
    first, second = line.finishing(), line.finishing(5)
    line.start(first)
    line.wait_for_end(first)
    line.start(*behind(first, second))
    assert line.wait_for_end(second).exit_code == 5


def test_a_stop_takes_one_out_of_its_line_and_lets_those_behind_it_pass(line: Bench) -> None:
    first, second, third = line.until_let_go(), line.finishing(), line.finishing(6)
    lined_up = behind(first, second, third)
    line.start(first, *lined_up)
    line.wait_for_start(first)
    line.engine.stop(lined_up[0], 0)
    line.let_go(first)
    assert line.wait_for_end(third).exit_code == 6
    line.let_another_one_finish()
    assert line.reports_of(second) == []


def test_who_was_taken_back_never_starts_and_another_may_stand_there(line: Bench) -> None:
    first, second, third, fourth = line.until_let_go(), line.finishing(), line.finishing(), line.finishing(7)
    line.start(first, *behind(first, second, third))
    line.wait_for_start(first)
    line.engine.take_back([second.id, third.id])  # type: ignore[attr-defined]
    assert {line.wait_for_end(one).cause for one in (second, third)} == {Cause.NOT_STARTED}
    line.start(*behind(first, fourth))
    line.let_go(first)
    assert line.wait_for_end(fourth).exit_code == 7
    line.engine.take_back([second.id, fourth.id, first.id])  # type: ignore[attr-defined]
    line.let_another_one_finish()
    assert [len(line.reports_of(one)) for one in (second, third, fourth)] == [1, 1, 2]


def test_after_a_restart_nobody_stands_in_a_line_any_more(line: Bench) -> None:
    first, second = line.running_long(), line.finishing()
    lined_up = behind(first, second)
    line.start(first, *lined_up)
    line.wait_for_start(first)
    line.restart()
    seen = line.engine.observe([first, *lined_up])
    assert [type(one) for one in seen] == [Started, Ended]
    assert isinstance(seen[1], Ended)
    assert seen[1].cause is Cause.NOT_STARTED
    line.engine.stop(first, 0)
    line.wait_for_end(first)
    line.let_another_one_finish()
    assert line.reports_of(second) == []


def test_nobody_of_a_line_begins_while_no_server_is_there(line: Bench) -> None:
    first, second = line.in_overtime(0.5), line.finishing(8)
    lined_up = behind(first, second)
    line.start(first, *lined_up)
    line.wait_for_start(first)
    line.restart()
    trace = line.folder / "home" / "attempts" / f"{first.id}.started"
    line.wait_until(lambda: not trace.read_text().endswith("---\n"), "its end on disk")
    line.let_another_one_finish()
    (ended,) = line.engine.observe(lined_up)
    assert isinstance(ended, Ended)
    assert ended.cause is Cause.NOT_STARTED


def test_who_stands_behind_one_whose_wrapper_was_killed_is_given_back(line: Bench) -> None:
    first, second, third = line.running_long(), line.finishing(3), line.finishing(4)
    lined_up = behind(first, second, third)
    line.start(first, *lined_up)
    line.wait_for_start(first)
    trace = line.folder / "home" / "attempts" / f"{first.id}.started"
    line.wait_until(lambda: trace.exists() and bool(trace.read_text()), "its wrapper has claimed it")
    os.kill(int(trace.read_text().split()[0]), signal.SIGKILL)
    assert line.wait_for_end(first).cause is Cause.LOST
    assert [line.wait_for_end(one).cause for one in (second, third)] == [Cause.NOT_STARTED] * 2
    assert [len(line.reports_of(one)) for one in (second, third)] == [1, 1]


def test_one_whose_wrapper_has_gone_on_is_known_to_have_ended_after_a_restart(line: Bench) -> None:
    first, second = line.finishing(3), line.running_long()
    line.engine.on_observation(lambda seen: None)  # the server dies before it records anything
    lined_up = behind(first, second)
    line.engine.start([first, *lined_up])
    trace = line.folder / "home" / "attempts" / f"{second.id}.started"
    line.wait_until(lambda: trace.exists() and bool(trace.read_text()), "the second one runs")
    line.restart()
    ended, started = line.engine.observe([first, *lined_up])
    assert isinstance(ended, Ended)
    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 3)
    assert isinstance(started, Started)
    line.engine.stop(lined_up[0], 0)
    assert line.wait_for_end(second).cause is Cause.STOPPED


def test_a_stop_ends_one_that_has_just_begun_in_its_line(line: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = line.finishing(), line.running_long()
    lined_up = behind(first, second)
    heard = threading.Event()
    supervision = line.engine._supervision  # type: ignore[attr-defined]
    over = supervision._over
    monkeypatch.setattr(supervision, "_over", lambda *words: heard.wait(20) and over(*words))
    line.start(first, *lined_up)
    trace = line.folder / "home" / "attempts" / f"{second.id}.started"
    line.wait_until(lambda: trace.exists() and bool(trace.read_text()), "the second one runs")
    line.engine.stop(lined_up[0], 0)
    heard.set()
    assert line.wait_for_end(second).cause is Cause.STOPPED


def test_nobody_stands_behind_one_whose_wrapper_has_gone_on_with_another(
    line: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervision = line.engine._supervision  # type: ignore[attr-defined]
    reapers, supervision.reapers = supervision.reapers, Later()  # the end of the first is not cleared up yet
    first, other, second = line.finishing(), line.running_long(), line.finishing(5)
    with monkeypatch.context() as patched:
        patched.setattr(supervision._clearing, "usual_end", lambda *seen: None)
        line.start(first)
        line.wait_until(lambda: bool(supervision.reapers.asked), "its wrapper has said that it is over")
    line.start(other)
    line.wait_for_start(other)
    line.start(*behind(first, second))
    assert line.wait_for_end(second).exit_code == 5
    later, supervision.reapers = supervision.reapers, reapers
    for asked in later.asked:
        reapers.submit(*asked)
    assert line.wait_for_end(first).exit_code == 0
    line.engine.stop(other, 0)
    line.wait_for_end(other)


def test_a_stop_gives_back_those_who_stand_behind_it(line: Bench) -> None:
    first, second, third = line.running_long(), line.finishing(), line.finishing()
    line.start(first, *behind(first, second, third))
    line.wait_for_start(first)
    line.engine.stop(first, 0)
    assert line.wait_for_end(first).cause is Cause.STOPPED
    assert [line.wait_for_end(one).cause for one in (second, third)] == [Cause.NOT_STARTED] * 2
    assert [len(line.reports_of(one)) for one in (second, third)] == [1, 1]


def test_nobody_starts_beside_one_that_is_being_stopped(line: Bench) -> None:
    first, second = line.ignoring_term(), line.finishing()
    line.start(first)
    line.wait_until_ignoring(first)
    line.engine.stop(first, 1.0)
    line.start(*behind(first, second))
    assert line.wait_for_end(second).cause is Cause.NOT_STARTED
    assert line.ends_of(first) == []
    assert line.wait_for_end(first).cause is Cause.STOPPED


def test_the_end_of_one_is_told_though_it_was_stopped_too_late(
    line: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = line.finishing(5), line.until_let_go(6)
    supervision = line.engine._supervision  # type: ignore[attr-defined]
    read, listening = Wrapper._read, threading.Event()
    monkeypatch.setattr(Wrapper, "_read", lambda wrapper: listening.wait(20) and read(wrapper))
    line.start(first, *behind(first, second))
    trace = line.folder / "home" / "attempts" / f"{second.id}.started"
    line.wait_until(lambda: trace.exists() and bool(trace.read_text()), "the second one runs")
    line.engine.stop(first, 0)
    listening.set()
    assert line.wait_for_end(first).exit_code == 5
    line.wait_for_start(second)
    assert second.id in supervision.running
    line.let_go(second)
    assert line.wait_for_end(second).exit_code == 6


def test_one_whose_wrapper_has_just_left_is_run_by_another(line: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    supervision = line.engine._supervision  # type: ignore[attr-defined]
    with supervision.lock:
        supervision.wrappers.expect()
        (gone,) = supervision.wrappers._idle
        monkeypatch.setattr(supervision, "gone", lambda wrapper: None)
        os.kill(gone.claim.pid, signal.SIGKILL)
        line.wait_until(lambda: select.select([gone.line], [], [], 0)[0] != [], "it is gone")
    attempt = line.finishing(3)
    line.start(attempt)
    monkeypatch.undo()
    assert line.wait_for_end(attempt).exit_code == 3


def group_of(line: Bench, attempt: Attempt) -> str:
    claim = Traces(line.folder / "home" / "attempts").claim(attempt.id)
    assert claim is not None
    return claim.group


def test_those_who_leave_it_quiet_use_one_group_after_the_other(line: Bench) -> None:
    others = [line.finishing(code) for code in (0, 3, 0)]
    first = line.finishing()
    line.start(first, *behind(first, *others))
    assert [line.wait_for_end(one).exit_code for one in others] == [0, 3, 0]
    assert {group_of(line, one) for one in (first, *others)} == {first.id}


def test_what_one_leaves_behind_reaches_nobody_else_and_is_ended(line: Bench) -> None:
    first, second = line.leaving_something(), line.finishing(4)
    lined_up = behind(first, second)
    line.start(first, *lined_up)
    assert line.wait_for_end(first).exit_code == 0
    assert line.wait_for_end(second).cause is Cause.NOT_STARTED
    again = line.finishing(5)
    line.start(again)
    assert line.wait_for_end(again).exit_code == 5
    assert group_of(line, again) != group_of(line, first)
    assert line.engine._groups.find(first.id) is None  # type: ignore[attr-defined]


def test_a_stop_of_one_that_is_over_spares_the_next_in_its_group(
    line: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = line.finishing(), line.until_let_go(6)
    supervision = line.engine._supervision  # type: ignore[attr-defined]
    heard, over = threading.Event(), supervision._over
    monkeypatch.setattr(supervision, "_over", lambda *words: heard.wait(20) and over(*words))
    line.start(first, *behind(first, second))
    trace = line.folder / "home" / "attempts" / f"{second.id}.started"
    line.wait_until(lambda: trace.exists() and bool(trace.read_text()), "the second one runs")
    assert group_of(line, second) == first.id
    line.engine.stop(first, 0)
    line.engine.stop(first, 0, "USR1")
    supervision.kill(first.id)
    heard.set()
    line.wait_for_end(first)
    line.let_go(second)
    assert (line.wait_for_end(second).cause, line.wait_for_end(second).exit_code) == (Cause.EXITED, 6)


def small(attempt: Attempt, script: str) -> Attempt:
    """It may use 32 MiB."""
    spec = replace(attempt.job.spec, command=("sh", "-c", script))
    return replace(attempt, job=replace(attempt.job, resources=Resources(1, 32), spec=spec))


@pytest.mark.parametrize(
    ("script", "cause"), [("exec tail /dev/zero", Cause.OUT_OF_MEMORY), ("tail /dev/zero; exit 0", Cause.EXITED)]
)
def test_what_one_lacked_of_memory_is_not_told_of_the_next(line: Bench, script: str, cause: Cause) -> None:
    if "memory" not in line.engine._groups.controllers:  # type: ignore[attr-defined]
        pytest.skip("the kernel limits no memory here")
    first, second = small(line.finishing(), script), small(line.finishing(), "exit 3")
    line.start(first)
    assert line.wait_for_end(first).cause is cause
    line.start(second)
    assert (line.wait_for_end(second).cause, line.wait_for_end(second).exit_code) == (Cause.EXITED, 3)
    assert group_of(line, second) == second.id


def test_what_one_has_used_is_not_counted_as_the_next_ones(line: Bench) -> None:
    busy = line.finishing()
    spec = replace(busy.job.spec, command=("timeout", "0.5", "sh", "-c", "while :; do :; done"))
    busy = replace(busy, job=replace(busy.job, spec=spec))
    after = line.running_long()
    line.start(busy, *behind(busy, after))
    line.wait_for_start(after)
    assert group_of(line, after) == busy.id
    began = line.engine._supervision.running[after.id].began_at  # type: ignore[attr-defined]
    line.wait_until(lambda: time.monotonic() - began > 0.3, "enough time has passed to say something")
    assert isinstance(line.engine, TakesSamples)
    cpus = line.engine.sample().attempts[after.id].cpus
    assert cpus is None or cpus < 0.5


def test_a_group_of_a_long_one_is_not_used_again(line: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision_module, "SHORT_SECONDS", 0.0)
    first, second = line.finishing(), line.finishing()
    line.start(first)
    line.wait_for_end(first)
    line.start(second)
    line.wait_for_end(second)
    assert group_of(line, second) == second.id
    assert line.engine._groups.find(first.id) is None  # type: ignore[attr-defined]


def test_groups_of_those_who_rest_are_swept_after_a_restart_and_those_in_use_are_not(line: Bench) -> None:
    first, second = line.finishing(), line.running_long()
    line.engine.on_observation(lambda seen: None)
    lined_up = behind(first, second)
    line.engine.start([first, *lined_up])
    trace = line.folder / "home" / "attempts" / f"{second.id}.started"
    line.wait_until(lambda: trace.exists() and bool(trace.read_text()), "the second one runs")
    line.engine._groups.create("999999.1", Limits())  # type: ignore[attr-defined]
    line.restart()
    line.engine.observe([first, *lined_up])
    line.engine.forget_all_but([first.id, second.id])
    assert list(line.engine._groups.names()) == [first.id]  # type: ignore[attr-defined]
    assert line.ends_of(second) == []
    line.engine.stop(lined_up[0], 0)
    assert line.wait_for_end(second).cause is Cause.STOPPED
    assert list(line.engine._groups.names()) == []  # type: ignore[attr-defined]


def test_a_group_is_removed_after_a_restart_though_one_who_left_it_is_not_recorded_yet(line: Bench) -> None:
    first = line.finishing()
    line.engine.on_observation(lambda seen: None)
    line.engine.start([first])
    trace = line.folder / "home" / "attempts" / f"{first.id}.started"
    line.wait_until(lambda: trace.exists() and trace.read_text().endswith("+\n"), "it has left its group quiet")
    line.engine._groups.create(first.id, Limits())  # type: ignore[attr-defined]
    line.restart()
    line.engine._groups.create(first.id, Limits())  # type: ignore[attr-defined]
    line.engine.observe([first])
    line.engine.forget_all_but([first.id])
    assert list(line.engine._groups.names()) == []  # type: ignore[attr-defined]


def test_one_whose_script_cannot_be_read_is_told_as_not_started_and_spares_those_around_it(
    line: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = launch.make_order
    first, spoilt, last = line.finishing(), line.finishing(), line.until_let_go(7)

    def order_of(payload: launch.Payload, folder: JobFolder, scripts: Scripts) -> Order:
        order = make(payload, folder, scripts)
        if order.attempt_id != spoilt.id:
            return order
        order.close()
        script = Script(10**6, "exit 0\n")
        os.dup2(socket.socket().detach(), script.descriptor)  # nobody can open that by its name
        return replace(order, script=script)

    monkeypatch.setattr(launch, "make_order", order_of)
    line.start(first, *behind(first, spoilt, last))
    end = line.wait_for_end(spoilt)
    assert end.cause is Cause.NOT_STARTED
    assert "script" in (end.detail or "")
    line.wait_for_start(last)
    line.let_go(last)
    assert line.wait_for_end(last).exit_code == 7
    assert group_of(line, last) == first.id


@pytest.mark.parametrize("limit", [None, 600])
def test_one_that_has_stopped_its_own_wrapper_is_ended_all_the_same(line: Bench, limit: int | None) -> None:
    attempt = line.stopping_itself(limit)
    line.start(attempt)
    line.wait_for_start(attempt)
    line.engine.stop(attempt, 0)
    assert line.wait_for_end(attempt).cause is Cause.STOPPED


def test_a_start_that_fails_leaves_no_watch_of_its_log(line: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    supervision = line.engine._supervision  # type: ignore[attr-defined]

    def fails() -> None:
        raise OSError("no process can be started: told by the test")

    monkeypatch.setattr(supervision.wrappers, "take", fails)
    attempt = line.finishing()
    line.start(attempt)
    assert line.wait_for_end(attempt).cause is Cause.NOT_STARTED
    assert supervision._log_order._numbers == {}


class Later:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def submit(self, *asked: Any) -> None:
        self.asked.append(asked)


@pytest.mark.parametrize("how", ["stop", "take_back"])
def test_what_the_server_opens_after_one_was_taken_out_of_its_line_is_never_run(
    line: Bench, tmp_path: Path, how: str
) -> None:
    first, second, third, last = line.until_let_go(), line.finishing(3), line.finishing(4), line.finishing(5)
    lined_up = behind(first, second, third, last)
    line.start(first, *lined_up)
    line.wait_for_start(first)
    if how == "stop":
        line.engine.stop(lined_up[0], 0)
        line.engine.stop(lined_up[1], 0)
    else:
        line.engine.take_back([second.id, third.id])  # type: ignore[attr-defined]
    somebodys_log = tmp_path / "log"
    somebodys_log.write_text(f"touch {tmp_path}/ran\n")
    opened = [os.open(somebodys_log, os.O_RDONLY) for _ in range(20)]
    line.let_go(first)
    assert line.wait_for_end(last).exit_code == 5
    for descriptor in opened:
        os.close(descriptor)
    assert not (tmp_path / "ran").exists()


def test_descriptors_of_those_who_were_taken_out_are_closed_in_the_end(line: Bench) -> None:
    before = len(os.listdir("/proc/self/fd"))
    first, second, last = line.until_let_go(), line.finishing(3), line.finishing(5)
    lined_up = behind(first, second, last)
    line.start(first, *lined_up)
    line.wait_for_start(first)
    line.engine.stop(lined_up[0], 0)
    line.let_go(first)
    line.wait_for_end(last)
    line.wait_until(lambda: not line.engine._supervision.wrappers._all, "its wrapper has left")  # type: ignore[attr-defined]
    line.wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, "nothing of them is open")


def test_who_stood_behind_another_finds_where_it_is_and_its_own_numbers(line: Bench) -> None:
    words = "echo $HELIOSTAT_NODE $HELIOSTAT_JOB_ID $HELIOSTAT_ATTEMPT_ID $HELIOSTAT_CHECKPOINT_DIR $PWD"
    told = [line.saying(words) for _ in range(4)]
    first, *others = told
    line.start(first, *(replace(one, node="") for one in behind(first, *others)))
    for attempt in told:
        line.wait_for_end(attempt)
        folder = line.engine.log_path(attempt.job.id, 1, "stdout").parent
        expected = [first.node, str(attempt.job.id), attempt.id, f"{folder}/checkpoints", f"{folder}/work"]
        assert (folder / "1.stdout").read_text().split() == expected
