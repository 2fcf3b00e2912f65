"""Explanations, forecasts and shares as JSON."""

from dataclasses import asdict

from heliostat.api.views import Json, time_view
from heliostat.models import Job
from heliostat.services.accounts.shares import Account
from heliostat.services.jobs.why import Accuracy, Answer, Explanation, Forecast, Option


def explanation_view(told: Explanation) -> Json:
    why = told.why
    view: Json = {
        "job_id": told.job.id,
        "state": told.job.state.value,
        "sentence": told.sentence,
        "blocked_by": why.blocked_by if why else told.not_in_line,
        "position": why.position if why else None,
        "pending": why.pending if why else None,
        "ahead": why.position - 1 if why and why.position else None,
        "ahead_projects": why.ahead_projects if why else None,
        "first_ahead": [_ahead_view(job) for job in told.ahead],
        "share_used": why.share_used if why else None,
        "starts_by": time_view(why.starts_by) if why else None,
        "not_before": time_view(why.not_before if why else told.job.begin_at if told.not_in_line else None),
        "forecast": forecast_view(told.forecast),
        "accuracy": asdict(told.accuracy),
    }
    if told.what_if is not None:
        view["what_if"] = [_option_view(option) for option in told.what_if.options]
    return view


def answer_view(answer: Answer, accuracy: Accuracy) -> Json:
    return {
        "starts_now": answer.now,
        "forecast": forecast_view(answer.forecast),
        "what_if": [_option_view(option) for option in answer.options],
        "accuracy": asdict(accuracy),
    }


def forecast_view(forecast: Forecast | None) -> Json | None:
    if forecast is None:
        return None
    return {
        "earliest_at": time_view(forecast.earliest_at),
        "likely_at": time_view(forecast.likely_at),
        "latest_at": time_view(forecast.latest_at),
        "confidence": forecast.confidence,
        "runs": forecast.runs,
        "limits_at": time_view(forecast.limits_at),
        "source": forecast.source,
    }


def account_view(account: Account) -> Json:
    return {
        "kind": account.kind,
        "name": account.name,
        "share": account.share,
        "entitled": None if account.entitled is None else round(account.entitled, 4),
        "usage_gpu_hours": round(account.usage, 2),
        "times_share": round(account.ratio, 3),
        "points_lost": round(account.points, 3),
        "below": [account_view(one) for one in account.below],
    }


def _ahead_view(job: Job) -> Json:
    """What everybody may know of somebody else's job."""
    gpus = job.resources.gpus * job.placement.tasks
    return {"id": job.id, "user": job.user, "project": job.project, "gpus": gpus}


def _option_view(option: Option) -> Json:
    return {
        "words": option.words,
        "change": option.change,
        "starts_now": option.now,
        "forecast": forecast_view(option.forecast),
    }
