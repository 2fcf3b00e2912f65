"""Which smaller or different request would start earlier, and when."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from heliostat.models import Job
from heliostat.scheduling.board import Board
from heliostat.scheduling.durations import Durations
from heliostat.scheduling.fitting import could_ever_run
from heliostat.scheduling.forecast import Effort, Forecast, forecast
from heliostat.scheduling.plan import plan
from heliostat.scheduling.variations import Variation, shorter, variations

_RUNS = 3
_WORTH_IT = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Option:
    """Another request and when it would start."""

    words: str
    change: dict[str, object]  # fields of a submission
    forecast: Forecast
    now: bool  # it would start at once


@dataclass(frozen=True, slots=True)
class Question:
    """A job that is not in the queue, to be asked about on this board, now."""

    board: Board
    durations: Durations
    job: Job
    now: datetime
    go_on: Callable[[], bool] = lambda: True


def when_it_starts(question: Question) -> Forecast | None:
    """None: nobody can tell."""
    return _foreseen(question, Effort())


def what_if(question: Question, so_far: Forecast | None) -> list[Option]:
    """Those that would start earlier than so far, the earliest first."""
    found = [option for option in (_shortened(question, so_far),) if option is not None]
    for variation in variations(question.job, question.board.machines.nodes):
        if not question.go_on():
            break
        if (option := _tried(question, variation, so_far)) is not None:
            found.append(option)
    return sorted(found, key=lambda option: option.forecast.likely_at)


def starts_at_once(question: Question) -> bool:
    board = question.board.fork()
    board.put(question.job, question.now)
    made = plan(board.glance(question.now), board.policy, question.now)
    return any(start.job.id == question.job.id for start in made.starts)


def at_once(now: datetime) -> Forecast:
    return Forecast(now, now, now, 1.0, now)


def _shortened(question: Question, so_far: Forecast | None) -> Option | None:
    """The longest time that would let it start at once, in a hole before what is kept for others."""
    if not _is_earlier(at_once(question.now), so_far):
        return None
    for variation in shorter(question.job, question.board.policy.assumed_limit_seconds):
        if not question.go_on():
            return None
        if starts_at_once(replace(question, job=variation.job)):
            return Option(variation.words, variation.change, at_once(question.now), now=True)
    return None


def _tried(question: Question, variation: Variation, so_far: Forecast | None) -> Option | None:
    board, job = question.board, variation.job
    data_class = board.accounts.project(job.project).data_class
    if not could_ever_run(board.machines.nodes, job.resources, job.placement, data_class):
        return None
    until = None if so_far is None else so_far.likely_at
    found = _foreseen(replace(question, job=job), Effort(_RUNS, limits=False, until=until))
    if found is None or not _is_earlier(found, so_far):
        return None
    return Option(variation.words, variation.change, found, now=found == at_once(question.now))


def _foreseen(question: Question, effort: Effort) -> Forecast | None:
    if starts_at_once(question):
        return at_once(question.now)
    board = question.board.fork()
    board.put(question.job, question.now)
    effort = replace(effort, wanted={question.job.id}, go_on=question.go_on)
    return forecast(board, question.durations, question.now, effort).get(question.job.id)


def _is_earlier(found: Forecast, so_far: Forecast | None) -> bool:
    return so_far is None or found.likely_at + _WORTH_IT < so_far.likely_at
