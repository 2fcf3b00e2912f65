"""Somebody sets the wall clock, by years, forwards and backwards. Nobody's job ends or starves for it."""

import glob
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.stage import Stage
from heliostat.models import AttemptEnded, AttemptStarted, EndCause, JobState
from support.attempt_wrapper import WrapperUnderTest
from support.server_process import ServerProcess
from support.waiting import wait_until

YEAR = 365 * 86400


class FakeClock:
    """The wall clock of processes born with this environment; `set` moves it while they run."""

    def __init__(self, folder: Path) -> None:
        libraries = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
        if not libraries:
            pytest.skip("libfaketime is missing: apt-get install faketime")
        self._file = folder / "clock"
        self.set(0)
        self.environ = {
            "LD_PRELOAD": libraries[0],
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, seconds: int) -> None:
        draft = self._file.with_suffix(".new")
        draft.write_text(f"{seconds:+d}\n")
        draft.replace(self._file)


@pytest.fixture
def clock(tmp_path: Path) -> FakeClock:
    return FakeClock(tmp_path)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "home")
    yield stage
    stage.close()


@pytest.mark.parametrize("days", [-3650, 3650])
def test_running_jobs_are_neither_stopped_nor_moved_by_a_jump_of_years(stage: Stage, days: int) -> None:
    jobs = [stage.submit(time_limit_seconds=60) for _ in range(2)]
    waiting = stage.submit()
    stage.settle()
    stage.engine.tell(*(AttemptStarted(f"{job_id}.1", stage.clock()) for job_id in jobs))
    stage.settle()
    stage.clock.jump(days=days)
    other = stage.submit(priority=-1)
    stage.settle()
    assert [stage.job(job_id).state for job_id in jobs] == [JobState.RUNNING] * 2
    assert stage.engine.stops == []
    stage.restart()
    assert [stage.job(job_id).state for job_id in jobs] == [JobState.RUNNING] * 2
    for job_id in jobs:
        stage.engine.tell(stage.engine.end(f"{job_id}.1", EndCause.EXITED, 0))
    stage.settle()
    assert [stage.job(job_id).state for job_id in jobs] == [JobState.COMPLETED] * 2
    assert {stage.job(job_id).state for job_id in (waiting, other)} == {JobState.STARTING}


def test_who_has_waited_longest_starts_first_although_the_clock_was_set_back(stage: Stage) -> None:
    stage.engine.open(False)
    first = [stage.submit() for _ in range(2)]
    stage.clock.jump(days=-3650)
    second = [stage.submit() for _ in range(2)]
    stage.engine.open(True)
    stage.settle()
    assert [stage.job(job_id).state for job_id in first] == [JobState.STARTING] * 2
    assert [stage.job(job_id).state for job_id in second] == [JobState.PENDING] * 2


def test_an_end_reported_with_an_earlier_time_than_its_start_still_counts(stage: Stage) -> None:
    job_id = stage.submit()
    stage.settle()
    stage.engine.tell(AttemptStarted(f"{job_id}.1", stage.clock()))
    stage.settle()
    stage.clock.jump(days=-3650)
    stage.engine.tell(AttemptEnded(f"{job_id}.1", stage.clock(), EndCause.EXITED, 0))
    stage.settle()
    assert stage.job(job_id).state is JobState.COMPLETED


def test_a_server_whose_clock_jumps_keeps_running_and_waiting_jobs(
    serve: Callable[..., ServerProcess], clock: FakeClock, tmp_path: Path
) -> None:
    server = serve(cpus=8, environ=clock.environ)
    gate = tmp_path / "gate"
    small = {"gpus": 4, "cpus": 1, "memory": 64}
    running = server.client.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3", **small, time="1h")
    wait_until(lambda: running.refresh().state == "running", "it runs")
    waiting = server.client.submit("exit 4", **small)
    spoilt = server.client.submit("exit 5", held=True)
    folder = server.home / "jobs" / str(spoilt.id)
    folder.touch()
    spoilt.release()
    wait_until(lambda: "not be started" in (spoilt.refresh().reason or ""), "it will be tried again")
    years = {}
    for jump in (10 * YEAR, -10 * YEAR):
        clock.set(jump)
        years[jump] = server.client.submit("true").wait(120).submitted_at.year
        assert running.refresh().state == "running"
    assert years[10 * YEAR] - years[-10 * YEAR] in (19, 20, 21), "the clock was not faked"
    folder.unlink()
    gate.touch()
    server.client.wait([running, waiting, spoilt], timeout=120)
    assert [job.exit_code for job in (running, waiting, spoilt)] == [3, 4, 5]
    server.assert_no_attempt_left()


@pytest.mark.parametrize("jump", [3 * YEAR, -3 * YEAR])
def test_the_time_limit_of_a_wrapper_does_not_depend_on_the_wall_clock(
    clock: FakeClock, tmp_path: Path, jump: int
) -> None:
    wrapper = WrapperUnderTest(tmp_path, clock.environ)
    try:
        wrapper.start("1.1", f"date +%Y >{tmp_path}/year; exec sleep 600", limit=2)
        wait_until((tmp_path / "year").exists, "the payload runs")
        clock.set(jump)
        seen = subprocess.run(
            ["date", "+%Y"], env={**os.environ, **clock.environ}, capture_output=True, text=True, check=True
        )
        assert abs(int(seen.stdout) - time.gmtime().tm_year) in (2, 3, 4), "the clock was not faked"
        assert wrapper.wait("1.1") == "143"
    finally:
        wrapper.kill_all()
    assert wrapper.status_file("1.1", "timed_out").exists()
