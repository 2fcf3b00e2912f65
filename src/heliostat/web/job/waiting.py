"""Why a job waits, when it will start, and what would start earlier."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from heliostat.models import Job, JobState
from heliostat.services.jobs.explanation import Forecast, ForecastAccuracy, JobExplanation, StartEstimate
from heliostat.web import words

_SHOWN_AHEAD = 5
_SOON = timedelta(minutes=1)

_ELSEWHERE = "This queue plans with time limits: jobs that end before theirs let others start earlier."
_FEW = 5  # forecasts: fewer say little about the next one


@dataclass(frozen=True, slots=True)
class Ahead:
    id: int
    user: str
    project: str
    gpus: float


@dataclass(frozen=True, slots=True)
class Waiting:
    sentence: str
    position: int | None
    pending: int
    ahead: tuple[Ahead, ...]
    more_ahead: int
    share: str  # empty: not worth a word
    forecast: Forecast | None
    is_soon: bool
    sure: str  # in 8 of 10 trial runs
    accuracy: str
    unforeseen: str  # why there is no forecast
    not_before: datetime | None


@dataclass(frozen=True, slots=True)
class Suggestion:
    words: str
    starts_at: datetime | None  # None: at once
    href: str


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer to "what would start earlier?"; `trouble` when there is none."""

    suggestions: tuple[Suggestion, ...] = ()
    trouble: str = ""


def waiting(told: JobExplanation, now: datetime) -> Waiting | None:
    """None: it does not wait in the queue."""
    why, forecast = told.wait_explanation, told.forecast
    if told.job.state is not JobState.PENDING:
        return None
    shown = told.jobs_ahead[:_SHOWN_AHEAD]
    position = why.position if why else None
    return Waiting(
        sentence=sentence(told.sentence),
        position=position,
        pending=why.pending if why else 0,
        ahead=tuple(_ahead(job) for job in shown),
        more_ahead=max(0, (position or 1) - 1 - len(shown)),
        share=f"{why.share_used:.1f}\N{MULTIPLICATION SIGN} its share" if why and why.share_used >= 0.05 else "",
        forecast=forecast,
        is_soon=forecast is not None and forecast.likely_at - now < _SOON,
        sure=_sure(forecast),
        accuracy=_ELSEWHERE if told.job.handed_over else _accuracy(told.accuracy),
        unforeseen=_unforeseen(told) if forecast is None else "",
        not_before=why.not_before if why else told.job.begin_at if told.ineligible_reason else None,
    )


def what_if(job: Job, answer: StartEstimate) -> WhatIf:
    return WhatIf(
        tuple(
            Suggestion(
                one.description, None if one.starts_now else one.forecast.likely_at, resubmit(job, one.change)
            )
            for one in answer.options
        )
    )


def resubmit(job: Job, change: Mapping[str, object] | None = None) -> str:
    """Where the same is submitted again, with these fields changed; empty: by default."""
    fields = {name: _field(value) for name, value in (change or {}).items()}
    return "/jobs/new?" + urlencode({"from": str(job.id), **fields})


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""


def _field(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return "" if value is None else str(value)


def _ahead(job: Job) -> Ahead:
    return Ahead(job.id, job.user, job.project, job.resources.gpus * job.placement.tasks)


def _sure(forecast: Forecast | None) -> str:
    if forecast is not None and forecast.source != "trial runs":
        return f"by {forecast.source}"
    if forecast is None or forecast.confidence is None or forecast.runs < 1:
        return ""
    return f"in {round(forecast.confidence * forecast.runs)} of {words.plural(forecast.runs, 'trial run')}"


def _accuracy(accuracy: ForecastAccuracy) -> str:
    if accuracy.of < _FEW:
        return "Too few forecasts have been put to the test here to say how good they are."
    return f"{accuracy.within} of the last {accuracy.of} starts were within the range first told."


def _unforeseen(told: JobExplanation) -> str:
    if told.ineligible_reason == "parents":
        return "When those it waits for are over."
    if told.wait_explanation is not None and told.wait_explanation.blocked_by == "nodes":
        return "Not with the nodes there are."
    if told.job.handed_over:
        return "It is not planned yet."
    return "Not foreseen yet; this takes a minute."
