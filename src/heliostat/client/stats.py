"""The client's verbs on what was used over time."""

from typing import SupportsInt, TypedDict

from heliostat.client.transport import Resource, escaped


class Series(TypedDict):
    name: str
    unit: str
    start_at: str
    step_seconds: int
    mean: list[float | None]
    max: list[float | None]
    last: float | None


class Figure(TypedDict):
    mean: float | None
    peak: float | None
    last: float | None


class DeviceFigures(TypedDict):
    utilisation: Figure
    memory_mib: Figure


class UsageSummary(TypedDict):
    sampled_seconds: float
    cpus: Figure
    memory_mib: Figure
    devices: list[DeviceFigures]


class Asked(TypedDict):
    cpus: int
    memory_mib: int
    gpus: float


class Verdict(TypedDict):
    sentences: list[str]
    judged: bool
    wasteful: bool
    gpus_used: int | None
    text: str


class AttemptUsage(TypedDict):
    elapsed_seconds: float
    cpu_seconds: float | None
    memory_mib: float | None
    gpu_seconds: float | None
    out_of_memory: bool


class JobStats(TypedDict):
    job_id: int
    asked: Asked
    device_memory_mib: list[int | None]
    verdict: Verdict
    summary: UsageSummary
    accounted: AttemptUsage | None
    series: list[Series]


class NodeStats(TypedDict):
    node: str
    span: str
    series: list[Series]


class ClusterStats(TypedDict):
    span: str
    series: list[Series]


class Stats(Resource):
    def job(self, job: SupportsInt) -> JobStats:
        """What a job has used over time, in short, and in words."""
        found: JobStats = self._transport.call("GET", f"/jobs/{int(job)}/stats")
        return found

    def node(self, node: str, span: str = "day") -> NodeStats:
        """What was used of a node in the last day, week, month or year."""
        path = f"/nodes/{escaped(node)}/stats"
        found: NodeStats = self._transport.call("GET", path, query=[("span", span)])
        return found

    def cluster(self, span: str = "day") -> ClusterStats:
        """The same of all nodes together, and how many jobs waited."""
        found: ClusterStats = self._transport.call("GET", "/cluster/stats", query=[("span", span)])
        return found
