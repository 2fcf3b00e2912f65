"""Client API for usage statistics of jobs, nodes and the cluster."""

from datetime import UTC, datetime
from typing import SupportsInt, TypedDict

from heliostat.client.transport import ApiResource, quote_path_segment


class TimeSeries(TypedDict):
    name: str
    unit: str
    start_at: str
    step_seconds: int
    mean: list[float | None]
    max: list[float | None]
    last: float | None


class SeriesStatistics(TypedDict):
    mean: float | None
    peak: float | None
    last: float | None


class DeviceStatistics(TypedDict):
    utilisation: SeriesStatistics
    memory_mib: SeriesStatistics


class UsageSummary(TypedDict):
    sampled_seconds: float
    cpus: SeriesStatistics
    memory_mib: SeriesStatistics
    devices: list[DeviceStatistics]


class RequestedResources(TypedDict):
    cpus: int
    memory_mib: int
    gpus: float


class EfficiencyFinding(TypedDict):
    rule: str
    sentence: str
    guide: str


class EfficiencyReport(TypedDict):
    sentences: list[str]
    judged: bool
    wasteful: bool
    gpus_used: int | None
    findings: list[EfficiencyFinding]
    change: dict[str, int | float | str]
    asks_for_more: bool
    text: str
    options: str
    advice: str
    command: str  # submits the job again with the change


class AttemptUsage(TypedDict):
    elapsed_seconds: float
    cpu_seconds: float | None
    memory_mib: float | None
    gpu_seconds: float | None
    out_of_memory: bool


class EnergyEstimate(TypedDict):
    """Of the GPUs of a job."""

    kwh: float
    co2_kg: float | None
    source: str  # "measured" by their counters, or an "estimate" from samples of their power


class JobStats(TypedDict):
    job_id: int
    requested: RequestedResources
    device_names: list[str]
    device_memory_mib: list[int | None]
    efficiency: EfficiencyReport
    run_seconds: float  # of all attempts
    summary: UsageSummary
    energy: EnergyEstimate | None
    accounting_usage: AttemptUsage | None
    series: list[TimeSeries]


class JobEfficiency(TypedDict):
    """An ended job, and what it used."""

    job_id: int
    name: str
    user: str
    project: str
    state: str
    ended_at: str
    run_seconds: float
    requested: RequestedResources
    summary: UsageSummary
    energy: EnergyEstimate | None
    unused_gpu_hours: float
    unused_cpu_hours: float
    efficiency: EfficiencyReport


class NodeStats(TypedDict):
    node: str
    span: str
    series: list[TimeSeries]


class ClusterStats(TypedDict):
    span: str
    series: list[TimeSeries]


class Stats(ApiResource):
    def job(self, job: SupportsInt) -> JobStats:
        """The usage of a job over time, a summary, and how efficiently it used its resources."""
        stats: JobStats = self._transport.call("GET", f"/jobs/{int(job)}/stats")
        return stats

    def efficiency(self, project: str | None = None, since: datetime | None = None) -> list[JobEfficiency]:
        """Your ended jobs, or those of a project that you manage, with what would have been enough; the largest
        waste first. By default of the last week."""
        query = [("project", project), ("since", None if since is None else since.astimezone(UTC).isoformat())]
        return self._items("/efficiency", query)

    def node(self, node: str, span: str = "day") -> NodeStats:
        """The usage of a node in the last day, week, month or year."""
        path = f"/nodes/{quote_path_segment(node)}/stats"
        stats: NodeStats = self._transport.call("GET", path, query=[("span", span)])
        return stats

    def cluster(self, span: str = "day") -> ClusterStats:
        """The usage of all nodes together, and the number of waiting jobs."""
        stats: ClusterStats = self._transport.call("GET", "/cluster/stats", query=[("span", span)])
        return stats
