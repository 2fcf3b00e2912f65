"""What running jobs use, as Slurm's `sstat` says it: some of them at a time, now and then."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.slurm.command_output import ArrayElementId, parse_raw_job_ids
from heliostat.engines.slurm.usage import (
    MAX_JOBS_PER_QUERY,
    LiveUsage,
    LiveUsageSampler,
    RunningJob,
    by_known_job_id,
    parse_sstat_usage,
)
from heliostat.errors import EngineUnavailable
from heliostat.models import DeviceSample, UsageSample

SAID = """\
1.batch|cpu=00:00:01,energy=0,fs/disk=11087,mem=2048K,pages=0,vmem=5512K
4.batch|cpu=00:00:00,energy=0,fs/disk=27412,mem=1M,pages=0,vmem=219468K
4.0|cpu=00:01:05,energy=0,gres/gpumem=3G,gres/gpuutil=150,mem=1G,pages=0
4.extern|
nonsense|cpu=00:00:01
"""


def test_the_steps_of_a_job_count_together() -> None:
    assert parse_sstat_usage(SAID) == {1: LiveUsage(1.0, 2.0), 4: LiveUsage(65.0, 1025.0, 150.0, 3072.0)}


def test_elements_are_known_by_the_number_slurm_has_inside() -> None:
    inner = parse_raw_job_ids("3_5|5|\n3_7|3|\n9|9|\n")
    fifth, seventh, gone = (ArrayElementId.of(3, index) for index in (5, 7, 8))
    lives = {3: LiveUsage(7.0), 5: LiveUsage(5.0), 9: LiveUsage(9.0)}
    assert by_known_job_id([fifth, seventh, gone, 9], lives, inner) == {
        fifth: LiveUsage(5.0),
        seventh: LiveUsage(7.0),
        9: LiveUsage(9.0),
    }


@given(st.text())
def test_any_text_is_read_without_harm(text: str) -> None:
    parse_sstat_usage(text)
    parse_raw_job_ids(text)


class FakeSlurm:
    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.seconds_used = 0.0
        self.is_away = False

    def read_live(self, numbers: Sequence[int]) -> dict[int, LiveUsage]:
        if self.is_away:
            raise EngineUnavailable("Slurm does not answer.")
        self.asked.append(list(numbers))
        return {number: LiveUsage(self.seconds_used, 100.0, 150.0, 3000.0) for number in numbers}


class Desk:
    """Looks when it is told to, at times it is told."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, running: Mapping[str, RunningJob], seconds: float = 60
    ) -> None:
        self.slurm, self.running, self.now = FakeSlurm(), dict(running), 1000.0
        self.use = LiveUsageSampler(self.slurm.read_live, seconds, lambda: self.running, lambda: self.now)
        monkeypatch.setattr(self.use._refreshes, "refresh_if_stale", lambda: None)


def test_cpus_are_those_kept_busy_since_the_look_before(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, {"1.1": RunningJob(7, 0), "2.1": RunningJob(8, 2)})
    desk.use.refresh()
    assert desk.use.readings()["1.1"] == UsageSample(None, 100.0)
    desk.now, desk.slurm.seconds_used = 1060.0, 90.0
    desk.use.refresh()
    each = DeviceSample(75.0, 1500.0)
    assert desk.use.readings() == {"1.1": UsageSample(1.5, 100.0), "2.1": UsageSample(1.5, 100.0, (each, each))}


def test_who_has_ended_and_what_is_long_ago_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, {"1.1": RunningJob(7, 0), "2.1": RunningJob(8, 0)})
    desk.use.refresh()
    del desk.running["2.1"]
    assert set(desk.use.readings()) == {"1.1"}
    desk.now += 200.0
    assert desk.use.readings() == {}


def test_many_take_turns_and_what_is_known_of_each_stays_until_its_next(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 2 * MAX_JOBS_PER_QUERY + 1
    desk = Desk(monkeypatch, {f"{number}.1": RunningJob(number, 0) for number in range(count)})
    for _ in range(3):
        desk.use.refresh()
        desk.now += 60.0
    assert [len(numbers) for numbers in desk.slurm.asked] == [MAX_JOBS_PER_QUERY] * 3
    assert {number for numbers in desk.slurm.asked for number in numbers} == set(range(count))
    assert len(desk.use.readings()) == count


def test_nobody_looks_if_nobody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, {"1.1": RunningJob(7, 0)}, seconds=0)
    monkeypatch.undo()
    assert desk.use.readings() == {}
    assert desk.slurm.asked == []


def test_slurm_away_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, {"1.1": RunningJob(7, 0)})
    desk.use.refresh()
    desk.slurm.is_away = True
    monkeypatch.undo()
    desk.use._refreshes.refresh_if_stale()
    desk.use._refreshes.wait_for_refresh(120)
    assert set(desk.use._samples) == {"1.1"}
