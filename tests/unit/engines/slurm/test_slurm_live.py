"""What running jobs use, as Slurm's `sstat` says it: some of them at a time, now and then."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.slurm.parse import ElementNumber, inner_numbers
from heliostat.engines.slurm.usage import MOST_AT_ONCE, Live, LiveUse, Running, by_known_number, lives_of_sstat
from heliostat.errors import EngineUnavailable
from heliostat.models import DeviceReading, Reading

SAID = """\
1.batch|cpu=00:00:01,energy=0,fs/disk=11087,mem=2048K,pages=0,vmem=5512K
4.batch|cpu=00:00:00,energy=0,fs/disk=27412,mem=1M,pages=0,vmem=219468K
4.0|cpu=00:01:05,energy=0,gres/gpumem=3G,gres/gpuutil=150,mem=1G,pages=0
4.extern|
nonsense|cpu=00:00:01
"""


def test_the_steps_of_a_job_count_together() -> None:
    assert lives_of_sstat(SAID) == {1: Live(1.0, 2.0), 4: Live(65.0, 1025.0, 150.0, 3072.0)}


def test_elements_are_known_by_the_number_slurm_has_inside() -> None:
    inner = inner_numbers("3_5|5|\n3_7|3|\n9|9|\n")
    fifth, seventh, gone = (ElementNumber.of(3, index) for index in (5, 7, 8))
    lives = {3: Live(7.0), 5: Live(5.0), 9: Live(9.0)}
    assert by_known_number([fifth, seventh, gone, 9], lives, inner) == {
        fifth: Live(5.0),
        seventh: Live(7.0),
        9: Live(9.0),
    }


@given(st.text())
def test_any_text_is_read_without_harm(text: str) -> None:
    lives_of_sstat(text)
    inner_numbers(text)


class FakeSlurm:
    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.seconds_used = 0.0
        self.is_away = False

    def read_live(self, numbers: Sequence[int]) -> dict[int, Live]:
        if self.is_away:
            raise EngineUnavailable("Slurm does not answer.")
        self.asked.append(list(numbers))
        return {number: Live(self.seconds_used, 100.0, 150.0, 3000.0) for number in numbers}


class Desk:
    """Looks when it is told to, at times it is told."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, running: Mapping[str, Running], seconds: float = 60
    ) -> None:
        self.slurm, self.running, self.now = FakeSlurm(), dict(running), 1000.0
        self.use = LiveUse(self.slurm.read_live, seconds, lambda: self.running, lambda: self.now)
        monkeypatch.setattr(self.use._looks, "if_old", lambda: None)


def test_cpus_are_those_kept_busy_since_the_look_before(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, {"1.1": Running(7, 0), "2.1": Running(8, 2)})
    desk.use.look()
    assert desk.use.readings()["1.1"] == Reading(None, 100.0)
    desk.now, desk.slurm.seconds_used = 1060.0, 90.0
    desk.use.look()
    each = DeviceReading(75.0, 1500.0)
    assert desk.use.readings() == {"1.1": Reading(1.5, 100.0), "2.1": Reading(1.5, 100.0, (each, each))}


def test_who_has_ended_and_what_is_long_ago_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, {"1.1": Running(7, 0), "2.1": Running(8, 0)})
    desk.use.look()
    del desk.running["2.1"]
    assert set(desk.use.readings()) == {"1.1"}
    desk.now += 200.0
    assert desk.use.readings() == {}


def test_many_take_turns_and_what_is_known_of_each_stays_until_its_next(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 2 * MOST_AT_ONCE + 1
    desk = Desk(monkeypatch, {f"{number}.1": Running(number, 0) for number in range(count)})
    for _ in range(3):
        desk.use.look()
        desk.now += 60.0
    assert [len(numbers) for numbers in desk.slurm.asked] == [MOST_AT_ONCE] * 3
    assert {number for numbers in desk.slurm.asked for number in numbers} == set(range(count))
    assert len(desk.use.readings()) == count


def test_nobody_looks_if_nobody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, {"1.1": Running(7, 0)}, seconds=0)
    monkeypatch.undo()
    assert desk.use.readings() == {}
    assert desk.slurm.asked == []


def test_slurm_away_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, {"1.1": Running(7, 0)})
    desk.use.look()
    desk.slurm.is_away = True
    monkeypatch.undo()
    desk.use._looks.if_old()
    desk.use._looks.wait(120)
    assert set(desk.use._seen) == {"1.1"}
