"""When Slurm is asked: every second, sooner when a job has noted something, and never too much."""

from pathlib import Path

import pytest

from heliostat.engines.slurm.polling import RECEIPT_CHECK_SECONDS, PollTimer
from heliostat.engines.slurm.tracked_jobs import TrackedJob
from unit.engines.slurm.test_slurm_mapping import ATTEMPT


class Clock:
    at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timer(clock: Clock) -> PollTimer:
    return PollTimer(1.0, clock)


def tracked(receipt: Path, *, waits: bool = False) -> TrackedJob:
    return TrackedJob(ATTEMPT, str(receipt), 1001, slurm_job_id=7, is_waiting=waits)


def ask(timer: PollTimer, clock: Clock, *ours: TrackedJob, seconds: float = 0.01) -> None:
    timer.begin_poll(ours)
    clock.at += seconds
    timer.end_poll()


def test_the_first_question_is_asked_at_once_and_the_next_a_second_later(timer: PollTimer, clock: Clock) -> None:
    assert timer.seconds_until_poll == 0
    ask(timer, clock)
    assert timer.seconds_until_poll == timer.seconds_until_check == 1.0


def test_a_receipt_that_grows_is_a_reason_to_ask(timer: PollTimer, clock: Clock, tmp_path: Path) -> None:
    receipt = tmp_path / "1.receipt"
    ask(timer, clock, tracked(receipt))
    assert timer.seconds_until_check == RECEIPT_CHECK_SECONDS
    clock.at += 0.5
    timer.check_receipts()
    assert timer.seconds_until_poll == 0.5
    receipt.write_text("begun 7 0 n1\n")
    timer.check_receipts()
    assert timer.seconds_until_poll == 0


def test_after_an_early_question_the_next_comes_soon_and_then_every_second_again(
    timer: PollTimer, clock: Clock, tmp_path: Path
) -> None:
    receipt = tmp_path / "1.receipt"
    ask(timer, clock, tracked(receipt))
    clock.at += 0.5
    receipt.write_text("begun 7 0 n1\n")
    timer.check_receipts()
    ask(timer, clock, tracked(receipt))
    assert timer.seconds_until_poll == pytest.approx(0.2)
    clock.at += 0.2
    ask(timer, clock, tracked(receipt))
    timer.check_receipts()
    assert timer.seconds_until_poll == 1.0


def test_what_is_dear_to_ask_is_not_asked_early(timer: PollTimer, clock: Clock, tmp_path: Path) -> None:
    receipt = tmp_path / "1.receipt"
    ask(timer, clock, tracked(receipt), seconds=0.04)
    receipt.write_text("begun 7 0 n1\n")
    clock.at += 0.7
    timer.check_receipts()
    assert timer.seconds_until_poll == pytest.approx(0.3)
    clock.at += 0.1001
    timer.check_receipts()
    assert timer.seconds_until_poll == 0


def test_whoever_runs_is_watched_before_whoever_waits(timer: PollTimer, clock: Clock, tmp_path: Path) -> None:
    waiting = [tracked(tmp_path / f"w{number}", waits=True) for number in range(1000)]
    running = tmp_path / "running"
    ask(timer, clock, *waiting, tracked(running))
    running.write_text("ended 7 0 0\n")
    clock.at += 0.5
    timer.check_receipts()
    assert timer.seconds_until_poll == 0


def test_while_nothing_is_in_slurm_there_is_nothing_to_glance_at(timer: PollTimer, clock: Clock) -> None:
    ask(timer, clock, TrackedJob(ATTEMPT, "/none", 1001))
    assert timer.seconds_until_check == 1.0


def noted(tmp_path: Path, *words: str) -> list[Path]:
    paths = [tmp_path / f"{number}.receipt" for number in range(len(words))]
    for path, word in zip(paths, words, strict=True):
        path.write_text(f"begun 7 0 n1\n{word}")
    return paths


def test_when_all_have_noted_their_end_slurm_is_asked_sooner_but_less_and_less_often(
    timer: PollTimer, clock: Clock, tmp_path: Path
) -> None:
    ours = [tracked(path) for path in noted(tmp_path, "", "ended 7 0 0\n")]
    ask(timer, clock, *ours)
    noted(tmp_path, "ended 7 0 0\n")
    clock.at += 0.0501
    timer.check_receipts()
    assert timer.seconds_until_poll == 0
    gaps = []
    for _ in range(4):
        ask(timer, clock, *ours)
        gaps.append(timer.seconds_until_poll)
        clock.at += timer.seconds_until_poll
    assert gaps == pytest.approx([0.05, 0.1, 0.2, 0.2])


def test_whose_end_is_noted_just_before_the_question_has_ended(
    timer: PollTimer, clock: Clock, tmp_path: Path
) -> None:
    ours = [tracked(path) for path in noted(tmp_path, "")]
    ask(timer, clock, *ours)
    noted(tmp_path, "ended 7 0 0\n")
    ask(timer, clock, *ours)
    assert timer.seconds_until_poll == pytest.approx(0.05)


def test_as_long_as_one_goes_on_the_end_of_others_is_no_reason_to_hurry(
    timer: PollTimer, clock: Clock, tmp_path: Path
) -> None:
    ours = [tracked(path) for path in noted(tmp_path, "", "")]
    ask(timer, clock, *ours)
    noted(tmp_path, "ended 7 0 0\n")
    clock.at += 0.1
    timer.check_receipts()
    assert timer.seconds_until_poll == pytest.approx(0.9)
    clock.at += 0.1001
    timer.check_receipts()
    assert timer.seconds_until_poll == 0


def test_one_that_begins_again_is_no_longer_at_its_end(timer: PollTimer, clock: Clock, tmp_path: Path) -> None:
    ours = [tracked(path) for path in noted(tmp_path, "ended 7 0 0\n")]
    ask(timer, clock, *ours)
    noted(tmp_path, "ended 7 0 0\nbegun 7 1 n1\n")
    ask(timer, clock, *ours)
    assert timer.seconds_until_poll == 1.0
