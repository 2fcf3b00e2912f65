"""Why a job waits, when it will start, and what would start earlier."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from heliostat.models import Job, JobState
from heliostat.services.jobs.explanation import Forecast, ForecastAccuracy, JobExplanation, StartEstimate
from heliostat.web import formatting

_SHOWN_AHEAD = 5
_SOON = timedelta(minutes=1)

_ELSEWHERE = "This queue plans with time limits: jobs that end before theirs let others start earlier."
_FEW = 5  # forecasts: fewer say little about the next one


@dataclass(frozen=True, slots=True)
class JobAhead:
    id: int
    user: str
    project: str
    gpus: float


@dataclass(frozen=True, slots=True)
class WaitExplanation:
    sentence: str
    position: int | None
    pending_count: int
    jobs_ahead: tuple[JobAhead, ...]
    more_ahead: int
    share_text: str  # empty: not worth a word
    forecast: Forecast | None
    is_soon: bool
    confidence_text: str  # in 8 of 10 trial runs
    accuracy_text: str
    no_forecast_reason: str  # why there is no forecast
    not_before: datetime | None


@dataclass(frozen=True, slots=True)
class EarlierStart:
    description: str
    starts_at: datetime | None  # None: at once
    href: str


@dataclass(frozen=True, slots=True)
class WhatIfView:
    """The answer to "what would start earlier?"; `trouble` when there is none."""

    suggestions: tuple[EarlierStart, ...] = ()
    error: str = ""


def build_wait_explanation(told: JobExplanation, now: datetime) -> WaitExplanation | None:
    """None: it does not wait in the queue."""
    why, forecast = told.wait_explanation, told.forecast
    if told.job.state is not JobState.PENDING:
        return None
    shown = told.jobs_ahead[:_SHOWN_AHEAD]
    position = why.position if why else None
    return WaitExplanation(
        sentence=format_sentence(told.sentence),
        position=position,
        pending_count=why.pending if why else 0,
        jobs_ahead=tuple(_ahead(job) for job in shown),
        more_ahead=max(0, (position or 1) - 1 - len(shown)),
        share_text=f"{why.share_used:.1f}\N{MULTIPLICATION SIGN} its share"
        if why and why.share_used >= 0.05
        else "",
        forecast=forecast,
        is_soon=forecast is not None and forecast.likely_at - now < _SOON,
        confidence_text=_sure(forecast),
        accuracy_text=_ELSEWHERE if told.job.dispatched else _accuracy(told.accuracy),
        no_forecast_reason=_unforeseen(told) if forecast is None else "",
        not_before=why.not_before if why else told.job.begin_at if told.ineligible_reason else None,
    )


def build_what_if_view(job: Job, answer: StartEstimate) -> WhatIfView:
    return WhatIfView(
        tuple(
            EarlierStart(
                one.description, None if one.starts_now else one.forecast.likely_at, resubmit_url(job, one.change)
            )
            for one in answer.options
        )
    )


def resubmit_url(job: Job, change: Mapping[str, object] | None = None) -> str:
    """Where the same is submitted again, with these fields changed; empty: by default."""
    fields = {name: _field(value) for name, value in (change or {}).items()}
    return "/jobs/new?" + urlencode({"from": str(job.id), **fields})


def format_sentence(text: str) -> str:
    """With a capital and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""


def _field(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return "" if value is None else str(value)


def _ahead(job: Job) -> JobAhead:
    return JobAhead(job.id, job.user, job.project, job.resources.gpus * job.placement.tasks)


def _sure(forecast: Forecast | None) -> str:
    if forecast is not None and forecast.source != "trial runs":
        return f"by {forecast.source}"
    if forecast is None or forecast.confidence is None or forecast.runs < 1:
        return ""
    return (
        f"in {round(forecast.confidence * forecast.runs)} of {formatting.format_count(forecast.runs, 'trial run')}"
    )


def _accuracy(accuracy: ForecastAccuracy) -> str:
    if accuracy.of < _FEW:
        return "Too few forecasts have been put to the test here to say how good they are."
    return f"{accuracy.within} of the last {accuracy.of} starts were within the range first told."


def _unforeseen(told: JobExplanation) -> str:
    if told.ineligible_reason == "parents":
        return "When those it waits for are over."
    if told.wait_explanation is not None and told.wait_explanation.blocked_by == "nodes":
        return "Not with the nodes there are."
    if told.job.dispatched:
        return "It is not planned yet."
    return "Not foreseen yet; this takes a minute."
