"""Wait explanation of the job page: reason, start forecast, and changes that would start earlier."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from heliostat.models import Job, JobState
from heliostat.services.jobs.explanation import Forecast, ForecastAccuracy, JobExplanation, StartEstimate
from heliostat.web import formatting

_MAX_JOBS_AHEAD = 5
_SOON = timedelta(minutes=1)
_LATEST = timedelta(minutes=5)  # a start that may be later is not soon

_EXTERNAL_FORECAST = "This forecast assumes that jobs use their full time limits; jobs often start earlier."
_MIN_FORECASTS = 5  # for a statement about the accuracy


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
    share_text: str  # empty: almost no usage
    forecast: Forecast | None
    is_soon: bool
    confidence_text: str  # (80% likely)
    accuracy_text: str
    no_forecast_reason: str  # why a forecast is missing
    not_before: datetime | None


@dataclass(frozen=True, slots=True)
class EarlierStart:
    description: str
    starts_at: datetime | None  # None: immediately
    href: str


@dataclass(frozen=True, slots=True)
class WhatIfView:
    """Changes that would start the job earlier, or an error."""

    suggestions: tuple[EarlierStart, ...] = ()
    error: str = ""


def build_wait_explanation(explanation: JobExplanation, now: datetime) -> WaitExplanation | None:
    """None: the job is not pending."""
    why, forecast = explanation.wait_explanation, explanation.forecast
    if explanation.job.state is not JobState.PENDING:
        return None
    shown = explanation.jobs_ahead[:_MAX_JOBS_AHEAD]
    position = why.position if why else None
    return WaitExplanation(
        sentence=format_sentence(explanation.sentence),
        position=position,
        pending_count=why.pending if why else 0,
        jobs_ahead=tuple(_ahead(job) for job in shown),
        more_ahead=max(0, (position or 1) - 1 - len(shown)),
        share_text=f"{why.share_used:.1f}\N{MULTIPLICATION SIGN} its share"
        if why and why.share_used >= 0.05
        else "",
        forecast=forecast,
        is_soon=forecast is not None and forecast.likely_at - now < _SOON and forecast.latest_at - now < _LATEST,
        confidence_text=_confidence_text(forecast),
        accuracy_text=_EXTERNAL_FORECAST if explanation.job.dispatched else _accuracy_text(explanation.accuracy),
        no_forecast_reason=_no_forecast_reason(explanation) if forecast is None else "",
        not_before=why.not_before if why else explanation.job.begin_at if explanation.ineligible_reason else None,
    )


def build_what_if_view(job: Job, answer: StartEstimate) -> WhatIfView:
    return WhatIfView(
        tuple(
            EarlierStart(
                option.description,
                None if option.starts_now else option.forecast.likely_at,
                resubmit_url(job, option.change),
            )
            for option in answer.options
        )
    )


def resubmit_url(job: Job, change: Mapping[str, object] | None = None) -> str:
    """URL of the form with the values of the job and these changes."""
    fields = {name: _field(value) for name, value in (change or {}).items()}
    return "/jobs/new?" + urlencode({"from": str(job.id), **fields})


def format_sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""


def _field(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return "" if value is None else str(value)


def _ahead(job: Job) -> JobAhead:
    return JobAhead(job.id, job.user, job.project, job.resources.gpus * job.placement.tasks)


def _confidence_text(forecast: Forecast | None) -> str:
    if forecast is None:
        return ""
    notes = [] if forecast.confidence is None else [f"{formatting.format_percent(forecast.confidence)} likely"]
    notes += [] if forecast.source == "simulation" else [forecast.source]
    return f"({', '.join(notes)})" if notes else ""


def _accuracy_text(accuracy: ForecastAccuracy) -> str:
    if accuracy.of < _MIN_FORECASTS:
        return "Not enough forecasts yet to measure their accuracy."
    return (
        f"{accuracy.within} of the last {accuracy.of} jobs started within the range of their first forecast, "
        f"{accuracy.early} earlier and {accuracy.late} later."
    )


def _no_forecast_reason(explanation: JobExplanation) -> str:
    if explanation.no_forecast_reason:
        return format_sentence(explanation.no_forecast_reason)
    if explanation.ineligible_reason == "parents":
        return "After its dependencies have finished."
    if explanation.wait_explanation is not None and explanation.wait_explanation.blocked_by == "nodes":
        return "Cannot start until a node is back."
    if explanation.job.dispatched:
        return "Not scheduled yet."
    return "No forecast: the job is new, or its start is too far away."
