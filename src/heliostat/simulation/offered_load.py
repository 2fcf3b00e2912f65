"""The offered load of a workload on a cluster, and workloads scaled to a given one."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from heliostat.errors import Invalid
from heliostat.simulation.cluster import ReplayCluster
from heliostat.simulation.traces.trace import MAX_TIMESTAMP_SECONDS
from heliostat.simulation.workload import Workload


def compute_offered_load(workload: Workload, cluster: ReplayCluster) -> float:
    """Requested resources, as a fraction of what the cluster has between the first and the last submission."""
    requested = sum(
        cluster.size_of(job) * seconds for job, seconds in zip(workload.jobs, workload.run_seconds, strict=True)
    )
    span = workload.submitted_seconds[-1] if workload.jobs else 0.0
    return float(requested / (cluster.size * span)) if span > 0 else 0.0


def scale_to_load(workloads: Sequence[Workload], cluster: ReplayCluster, load: float) -> list[Workload]:
    """The workloads with all times between submissions multiplied by one factor, so that the first workload
    has this offered load on the cluster."""
    factor = compute_offered_load(workloads[0], cluster) / load
    if not factor:
        raise Invalid(
            "--scale-load: these jobs have no offered load: all were submitted at once, or they request no"
            f" {cluster.usage_unit}.",
            "Omit --scale-load, or choose other jobs.",
        )
    if workloads[0].submitted_seconds[-1] * factor >= MAX_TIMESTAMP_SECONDS:
        raise Invalid(f"--scale-load: a load of {load:g} needs more than a thousand years.", "Use a higher load.")
    return [_stretch(workload, factor) for workload in workloads]


def _stretch(workload: Workload, factor: float) -> Workload:
    origin = workload.jobs[0].submitted_at
    submitted_seconds = tuple(round(seconds * factor, 6) for seconds in workload.submitted_seconds)
    jobs = tuple(
        replace(job, submitted_at=origin + timedelta(seconds=seconds))
        for job, seconds in zip(workload.jobs, submitted_seconds, strict=True)
    )
    return replace(
        workload, jobs=jobs, submitted_seconds=submitted_seconds, gap_factor=workload.gap_factor * factor
    )
