"""When Slurm is asked: every second, sooner when a job has noted something, and never too much."""

from pathlib import Path

import pytest

from heliostat.engines.slurm.handed import Handed
from heliostat.engines.slurm.lookout import GLANCE_SECONDS, Lookout
from unit.engines.slurm.test_slurm_words import ATTEMPT


class Clock:
    at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lookout(clock: Clock) -> Lookout:
    return Lookout(1.0, clock)


def handed(receipt: Path, *, waits: bool = False) -> Handed:
    return Handed(ATTEMPT, str(receipt), 1001, number=7, waits=waits)


def ask(lookout: Lookout, clock: Clock, *ours: Handed, seconds: float = 0.01) -> None:
    lookout.begin(ours)
    clock.at += seconds
    lookout.end()


def test_the_first_question_is_asked_at_once_and_the_next_a_second_later(lookout: Lookout, clock: Clock) -> None:
    assert lookout.left == 0
    ask(lookout, clock)
    assert lookout.left == lookout.glance_left == 1.0


def test_a_receipt_that_grows_is_a_reason_to_ask(lookout: Lookout, clock: Clock, tmp_path: Path) -> None:
    receipt = tmp_path / "1.receipt"
    ask(lookout, clock, handed(receipt))
    assert lookout.glance_left == GLANCE_SECONDS
    clock.at += 0.5
    lookout.glance()
    assert lookout.left == 0.5
    receipt.write_text("begun 7 0 n1\n")
    lookout.glance()
    assert lookout.left == 0


def test_after_an_early_question_the_next_comes_soon_and_then_every_second_again(
    lookout: Lookout, clock: Clock, tmp_path: Path
) -> None:
    receipt = tmp_path / "1.receipt"
    ask(lookout, clock, handed(receipt))
    clock.at += 0.5
    receipt.write_text("begun 7 0 n1\n")
    lookout.glance()
    ask(lookout, clock, handed(receipt))
    assert lookout.left == pytest.approx(0.2)
    clock.at += 0.2
    ask(lookout, clock, handed(receipt))
    lookout.glance()
    assert lookout.left == 1.0


def test_what_is_dear_to_ask_is_not_asked_early(lookout: Lookout, clock: Clock, tmp_path: Path) -> None:
    receipt = tmp_path / "1.receipt"
    ask(lookout, clock, handed(receipt), seconds=0.04)
    receipt.write_text("begun 7 0 n1\n")
    clock.at += 0.7
    lookout.glance()
    assert lookout.left == pytest.approx(0.3)
    clock.at += 0.1001
    lookout.glance()
    assert lookout.left == 0


def test_whoever_runs_is_watched_before_whoever_waits(lookout: Lookout, clock: Clock, tmp_path: Path) -> None:
    waiting = [handed(tmp_path / f"w{number}", waits=True) for number in range(1000)]
    running = tmp_path / "running"
    ask(lookout, clock, *waiting, handed(running))
    running.write_text("ended 7 0 0\n")
    clock.at += 0.5
    lookout.glance()
    assert lookout.left == 0


def test_while_nothing_is_in_slurm_there_is_nothing_to_glance_at(lookout: Lookout, clock: Clock) -> None:
    ask(lookout, clock, Handed(ATTEMPT, "/none", 1001))
    assert lookout.glance_left == 1.0


def noted(tmp_path: Path, *words: str) -> list[Path]:
    paths = [tmp_path / f"{number}.receipt" for number in range(len(words))]
    for path, word in zip(paths, words, strict=True):
        path.write_text(f"begun 7 0 n1\n{word}")
    return paths


def test_when_all_have_noted_their_end_slurm_is_asked_sooner_but_less_and_less_often(
    lookout: Lookout, clock: Clock, tmp_path: Path
) -> None:
    ours = [handed(path) for path in noted(tmp_path, "", "ended 7 0 0\n")]
    ask(lookout, clock, *ours)
    noted(tmp_path, "ended 7 0 0\n")
    clock.at += 0.0501
    lookout.glance()
    assert lookout.left == 0
    gaps = []
    for _ in range(4):
        ask(lookout, clock, *ours)
        gaps.append(lookout.left)
        clock.at += lookout.left
    assert gaps == pytest.approx([0.05, 0.1, 0.2, 0.2])


def test_whose_end_is_noted_just_before_the_question_has_ended(
    lookout: Lookout, clock: Clock, tmp_path: Path
) -> None:
    ours = [handed(path) for path in noted(tmp_path, "")]
    ask(lookout, clock, *ours)
    noted(tmp_path, "ended 7 0 0\n")
    ask(lookout, clock, *ours)
    assert lookout.left == pytest.approx(0.05)


def test_as_long_as_one_goes_on_the_end_of_others_is_no_reason_to_hurry(
    lookout: Lookout, clock: Clock, tmp_path: Path
) -> None:
    ours = [handed(path) for path in noted(tmp_path, "", "")]
    ask(lookout, clock, *ours)
    noted(tmp_path, "ended 7 0 0\n")
    clock.at += 0.1
    lookout.glance()
    assert lookout.left == pytest.approx(0.9)
    clock.at += 0.1001
    lookout.glance()
    assert lookout.left == 0


def test_one_that_begins_again_is_no_longer_at_its_end(lookout: Lookout, clock: Clock, tmp_path: Path) -> None:
    ours = [handed(path) for path in noted(tmp_path, "ended 7 0 0\n")]
    ask(lookout, clock, *ours)
    noted(tmp_path, "ended 7 0 0\nbegun 7 1 n1\n")
    ask(lookout, clock, *ours)
    assert lookout.left == 1.0
