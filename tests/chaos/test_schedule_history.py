"""The checker is checked: whatever is wrong with a history that was right, it says so."""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy

import pytest

from chaos.schedule_history import History, problems

TIMES = [f"2026-03-01T12:00:{second:02}Z" for second in range(5)]


def a_right_one() -> History:
    firings = {
        name: [
            {"due_at": at, "at": at.replace("Z", ".500000Z"), "state": "succeeded", "job_id": first + number}
            for number, at in enumerate(TIMES)
        ]
        for name, first in (("a", 1), ("b", 100))
    }
    ran = Counter(f"{name} {at}" for name in "ab" for at in TIMES)
    return History({"a": TIMES, "b": TIMES}, firings, ran)


def fired_twice(history: History) -> None:
    history.firings["a"].append({**history.firings["a"][2], "job_id": 50})  # type: ignore[attr-defined]


def fired_twice_and_ran_twice(history: History) -> None:
    fired_twice(history)
    history.ran[f"a {TIMES[2]}"] += 1


def missed(history: History) -> None:
    del history.firings["b"][0]  # type: ignore[attr-defined]
    del history.ran[f"b {TIMES[0]}"]


def fired_and_never_ran(history: History) -> None:
    del history.ran[f"b {TIMES[4]}"]


def ran_twice(history: History) -> None:
    history.ran[f"a {TIMES[0]}"] += 1


def fired_too_early(history: History) -> None:
    history.firings["a"][1]["at"] = "2026-03-01T11:59:59Z"  # type: ignore[index]


def fired_at_a_time_of_its_own(history: History) -> None:
    late = "2026-03-01T12:00:07Z"
    history.firings["a"].append({"due_at": late, "at": late, "state": "succeeded", "job_id": 60})  # type: ignore[attr-defined]


def two_share_a_job(history: History) -> None:
    history.firings["a"][1]["job_id"] = history.firings["a"][0]["job_id"]  # type: ignore[index]


def one_was_skipped(history: History) -> None:
    history.firings["b"][3]["state"] = "skipped"  # type: ignore[index]


def ran_without_being_due(history: History) -> None:
    history.ran["c 2026-03-01T12:00:00Z"] += 1


def test_a_history_that_is_right_has_no_problems() -> None:
    assert problems(a_right_one()) == []


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (fired_twice, "fired 2 times"),
        (fired_twice_and_ran_twice, "ran 2 times"),
        (missed, "fired 0 times"),
        (fired_and_never_ran, "ran 0 times"),
        (ran_twice, "ran 2 times"),
        (fired_too_early, "before it was due"),
        (fired_at_a_time_of_its_own, "never due"),
        (two_share_a_job, "belongs to 2 firings"),
        (one_was_skipped, "it has skipped"),
        (ran_without_being_due, "ran and was never due"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_whatever_is_wrong_is_noticed(harm: Callable[[History], None], words: str) -> None:
    history = deepcopy(a_right_one())
    harm(history)
    assert any(words in problem for problem in problems(history)), problems(history)
