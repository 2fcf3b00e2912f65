"""The client's verbs on the queue: when a job would start, whose share is used, who used what."""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

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
    usage_gpu_hours: float
    usage_ratio: float
    priority_penalty: float
    below: "list[ShareEntry]"


class UsageReportRow(TypedDict):
    month: str
    name: str
    jobs: int
    gpu_hours: float
    cpu_hours: float
    fraction_of_total: float
    wasted_gpu_hours: float
    wasted_cpu_hours: float
    mean_wait_seconds: float | None
    median_wait_seconds: float | None


class ShareTree(TypedDict, total=False):
    items: list[ShareEntry]
    usage_source: str  # heliostat; slurm, which counts jobs of plain sbatch too


class StartEstimate(TypedDict):
    starts_now: bool
    forecast: Forecast | None
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
        """When such a job would start, were it submitted now: `when(gpus=4, time="8h")`. Stores nothing.

        Takes what `submit` takes; the command may be left out, and counts only by the name it gives the job: how
        long those of that name took. Of an array, one element is looked at.
        """
        given: dict[str, Any] = {"command": command, "array": array, **options}
        foreseen: StartEstimate = self._transport.call(
            "POST", "/when", job_body(given), may_repeat=True, timeout_seconds=_FORECAST_SECONDS
        )
        return foreseen

    def share(self) -> ShareTree:
        """The fair-share tree: departments, below them projects, below them users; and whose count it is."""
        tree: ShareTree = self._transport.call("GET", "/share")
        return tree

    def report(self, month: str | None = None, by: str = "project") -> list[UsageReportRow]:
        """Who used what in a month ("2026-11"), by department, project or user."""
        return self._items("/report", [("month", month), ("by", by)])

    def report_csv(self, month: str | None = None, by: str = "project") -> str:
        """The same as a table for spreadsheets."""
        query = [("month", month), ("by", by), ("format", "csv")]
        return self._transport.send(ApiRequest("GET", "/report", query=query)).body.decode("utf-8")
