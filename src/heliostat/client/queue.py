"""Client API for the queue: start forecasts, fair shares and usage reports."""

from collections.abc import Sequence
from datetime import date
from typing import Any, NotRequired, TypedDict, Unpack

from heliostat.client.api_types import Forecast, ForecastAccuracy, JobOptions, RequestVariation
from heliostat.client.request_bodies import job_body
from heliostat.client.transport import ApiRequest, ApiResource

_FORECAST_SECONDS = 60.0


class ShareEntry(TypedDict):
    """A department, project or user of the fair-share tree."""

    kind: str
    name: str
    share: int
    entitled: float | None
    usage_gpu_hours: float  # with what is charged in advance
    reserved_gpu_hours: float  # charged in advance for running jobs
    usage_ratio: float
    credit_gpu_hours: float  # of a user: not charged in the last week, for idle GPUs given back early
    children: "list[ShareEntry]"


class UsageReportRow(TypedDict):
    period: str
    name: str
    jobs: int
    gpu_hours: float
    cpu_hours: float
    fraction_of_total: float
    wasted_gpu_hours: float
    wasted_cpu_hours: float
    mean_wait_seconds: float | None
    median_wait_seconds: float | None
    energy_kwh: float | None  # of GPUs
    co2_kg: float | None
    energy_source: str | None  # "measured", or "estimate"


class WasteReportRow(TypedDict):
    """In GPU-hours. What is granted and neither used nor idle was not measured."""

    period: str
    name: str
    jobs: int
    granted_gpu_hours: float
    used_gpu_hours: float
    idle_gpu_hours: float
    returned_gpu_hours: float


class IdleJobPreview(TypedDict):
    """What the steps against idle GPUs would have done to an attempt."""

    job_id: int
    attempt: int
    user: str
    project: str
    gpus: int
    steps: list[dict[str, str]]  # step and time
    returned_gpu_hours: float


class ReportDays(TypedDict, total=False):
    """The first and the last day of a report, in UTC."""

    first_day: date | str | None
    last_day: date | str | None


class ShareTree(TypedDict, total=False):
    items: list[ShareEntry]
    usage_source: str  # heliostat; or slurm, which also counts jobs submitted to it directly


class AccountDelivery(TypedDict):
    """What a department, project or user was entitled to in a period, and what it received."""

    kind: str
    name: str
    share: int
    share_fraction: float | None  # of the cluster; None: it asked for nothing
    entitled_gpu_hours: float
    delivered_gpu_hours: float
    delivered_ratio: float | None  # delivered as a multiple of entitled
    entitled_by_step: list[float]
    delivered_by_step: list[float]
    children: "list[AccountDelivery]"


class ShareDelivery(TypedDict):
    items: list[AccountDelivery]
    start_at: str
    end_at: str
    step_days: int  # length of a step; the last one may be shorter


class StartEstimate(TypedDict):
    starts_now: bool
    forecast: Forecast | None
    no_forecast_reason: NotRequired[str | None]  # while Heliostat is paused
    what_if: list[RequestVariation]
    accuracy: ForecastAccuracy


class Queue(ApiResource):
    def when(
        self,
        command: str | Sequence[str] | None = None,
        *,
        array: str | None = None,
        **options: Unpack[JobOptions],
    ) -> StartEstimate:
        """Forecasts when a job would start if submitted now: `when(gpus=4, time="8h")`. Submits nothing.

        Takes the arguments of `submit`. The command is optional; only the job name derived from it matters, for
        the run times of earlier jobs with that name. For an array, forecasts one element.
        """
        fields: dict[str, Any] = {"command": command, "array": array, **options}
        estimate: StartEstimate = self._transport.call(
            "POST", "/when", job_body(fields), may_repeat=True, timeout_seconds=_FORECAST_SECONDS
        )
        return estimate

    def share(self) -> ShareTree:
        """The fair-share tree of departments, projects and users, and the source of its usage."""
        tree: ShareTree = self._transport.call("GET", "/share")
        return tree

    def share_delivery(self, since: date | str | None = None) -> ShareDelivery:
        """What each account was entitled to since a day ("2026-11-01", in UTC; default: two weeks ago), and what
        it received: in all, and in each step of some days."""
        delivery: ShareDelivery = self._transport.call("GET", "/share/delivery", query=[("since", since)])
        return delivery

    def report(
        self, month: str | None = None, by: str = "project", **days: Unpack[ReportDays]
    ) -> list[UsageReportRow]:
        """Usage of a month ("2026-11"), or of the days `first_day` to `last_day`, by department, project, user or
        gpu_type."""
        return self._items("/report", _report_query(month, by, days))

    def report_csv(
        self, month: str | None = None, by: str = "project", *, waste: bool = False, **days: Unpack[ReportDays]
    ) -> str:
        """The same report, or the waste report, as CSV."""
        query = [*_report_query(month, by, days), ("format", "csv")]
        path = "/report/waste" if waste else "/report"
        return self._transport.send(ApiRequest("GET", path, query=query)).body.decode("utf-8")

    def waste_report(
        self, month: str | None = None, by: str = "project", **days: Unpack[ReportDays]
    ) -> list[WasteReportRow]:
        """Granted, used, idle and returned GPU-hours of a period, by department, project or user."""
        return self._items("/report/waste", _report_query(month, by, days))

    def idle_report(self, month: str | None = None, **days: Unpack[ReportDays]) -> list[IdleJobPreview]:
        """What all steps against idle GPUs would have done in a period. For admins."""
        return self._items("/report/idle", _report_query(month, None, days))


def _report_query(month: str | None, by: str | None, days: ReportDays) -> list[tuple[str, object]]:
    return [("month", month), ("from", days.get("first_day")), ("to", days.get("last_day")), ("by", by)]
