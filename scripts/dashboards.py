"""Tables of the Grafana dashboards: their panels and queries."""

from dataclasses import dataclass
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    title: str
    queries: dict[str, str]  # legend: PromQL
    unit: str = "short"  # a unit of Grafana
    kind: str = "timeseries"
    is_stacked: bool = False
    maximum: float | None = None


@dataclass(frozen=True)
class Dashboard:
    """Its file and the last part of its uid are its name, to which the pages of Heliostat link."""

    name: str
    title: str
    rows: tuple[tuple[Panel, ...], ...]
    variables: tuple[dict[str, Any], ...] = ()
    span: str = "now-24h"


def query_variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # when the time range changes: what existed then
        "sort": 1,
    }


def text_variable(name: str) -> dict[str, Any]:
    """A cluster has too many jobs for a list."""
    return {"name": name, "label": name.capitalize(), "type": "textbox", "query": "1"}


def percent(title: str, queries: dict[str, str]) -> Panel:
    return Panel(title, queries, "percentunit", maximum=1)


def stat(title: str, query: str, unit: str = "short") -> Panel:
    return Panel(title, {title: query}, unit, "stat")


def p95(metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile(0.95, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))"


def of_job(metric: str) -> str:
    return f'{metric} and on (uuid) heliostat_job_gpu_info{{job="$job"}}'


def by_uuid(metric: str) -> str:
    """dcgm-exporter has another name for the label. On Slurm, Heliostat knows a GPU as `node:index`."""
    replaced = f'label_replace({metric}, "uuid", "$1", "UUID", "(.+)")'
    return f'({replaced} or label_join({metric}, "uuid", ":", "node", "gpu"))'


HTTP_REQUESTS = "heliostat_http_request_duration_seconds"
PROJECT_UTILIZATION = 'project:heliostat_gpu_utilization_ratio:avg{project="$project"}'
FREE_DISK_SPACE = (
    'node_filesystem_avail_bytes{node="$node", fstype!~"tmpfs|ramfs|overlay"} / node_filesystem_size_bytes'
)

CLUSTER = Dashboard(
    "cluster",
    "Heliostat: cluster",
    (
        (
            stat("GPUs", "cluster:heliostat_gpus:count"),
            stat("Usable GPUs", "cluster:heliostat_gpus_usable:count"),
            stat("Allocated GPUs", "cluster:heliostat_gpus_allocated:count"),
            stat("GPU utilization", "cluster:heliostat_gpu_utilization_ratio:avg", "percentunit"),
            stat("Running jobs", 'sum(heliostat_jobs{state="running"})'),
            stat("Pending jobs", 'sum(heliostat_jobs{state="pending"})'),
            stat("Nodes down", "count(heliostat_node_up == 0) or vector(0)"),
            stat("Alerts", 'count(ALERTS{alertstate="firing"}) or vector(0)'),
        ),
        (
            Panel(
                "GPUs",
                {
                    "all": "cluster:heliostat_gpus:count",
                    "usable": "cluster:heliostat_gpus_usable:count",
                    "allocated": "cluster:heliostat_gpus_allocated:count",
                },
            ),
            percent("GPU utilization by node", {"{{node}}": "avg by (node) (heliostat_gpu_utilization_ratio)"}),
        ),
        (
            Panel(
                "Allocated GPUs by project", {"{{project}}": "heliostat_project_allocated_gpus"}, is_stacked=True
            ),
            Panel("Jobs by state", {"{{state}}": "sum by (state) (heliostat_jobs)"}),
        ),
        (
            Panel(
                "Wait of jobs that start",
                {
                    "median": "cluster:heliostat_job_wait_seconds:p50_1h",
                    "95%": "cluster:heliostat_job_wait_seconds:p95_1h",
                    "oldest pending job": "heliostat_pending_oldest_seconds",
                },
                "s",
            ),
            Panel(
                "Starts and ends per hour",
                {
                    "started": "3600 * sum(rate(heliostat_job_starts_total[1h]))",
                    "{{cause}}": "3600 * sum by (cause) (rate(heliostat_job_ends_total[1h]))",
                },
            ),
        ),
        (
            percent(
                "Allocated CPUs and memory",
                {
                    "CPUs": "sum(heliostat_node_cpus_allocated) / sum(heliostat_node_cpus)",
                    "memory": "sum(heliostat_node_memory_allocated_bytes) / sum(heliostat_node_memory_bytes)",
                },
            ),
            Panel(
                "Hottest GPU by node",
                {"{{node}}": "max by (node) (heliostat_gpu_temperature_celsius)"},
                "celsius",
            ),
            Panel("GPU power", {"all GPUs": "sum(heliostat_gpu_power_watts)"}, "watt"),
        ),
    ),
    span="now-7d",
)

NODE = Dashboard(
    "node",
    "Heliostat: node",
    (
        (
            stat("Up", 'heliostat_node_up{node="$node"}'),
            stat("GPUs", 'count(heliostat_gpu_info{node="$node"})'),
            stat("Usable GPUs", 'sum(heliostat_gpu_usable{node="$node"})'),
            stat("Allocated GPUs", 'sum(heliostat_gpu_allocated{node="$node"})'),
            stat("Allocated CPUs", 'heliostat_node_cpus_allocated{node="$node"}'),
            stat("Allocated memory", 'heliostat_node_memory_allocated_bytes{node="$node"}', "bytes"),
        ),
        (
            percent("GPU utilization", {"{{uuid}}": 'heliostat_gpu_utilization_ratio{node="$node"}'}),
            Panel("GPU memory", {"{{uuid}}": 'heliostat_gpu_memory_used_bytes{node="$node"}'}, "bytes"),
        ),
        (
            Panel("GPU temperature", {"{{uuid}}": 'heliostat_gpu_temperature_celsius{node="$node"}'}, "celsius"),
            Panel("GPU power", {"{{uuid}}": 'heliostat_gpu_power_watts{node="$node"}'}, "watt"),
        ),
        (
            percent(
                "CPU",
                {
                    "used": '1 - avg(rate(node_cpu_seconds_total{mode="idle", node="$node"}[$__rate_interval]))',
                    "allocated": 'heliostat_node_cpus_allocated{node="$node"} / heliostat_node_cpus{node="$node"}',
                },
            ),
            Panel(
                "Memory",
                {
                    "used": 'node_memory_MemTotal_bytes{node="$node"} - node_memory_MemAvailable_bytes',
                    "allocated": 'heliostat_node_memory_allocated_bytes{node="$node"}',
                    "total": 'node_memory_MemTotal_bytes{node="$node"}',
                },
                "bytes",
            ),
        ),
        (
            percent("Free disk space", {"{{mountpoint}}": FREE_DISK_SPACE}),
            Panel(
                "Network",
                {
                    f"{way} {{{{device}}}}": f'rate(node_network_{way}_bytes_total{{node="$node", '
                    'device!~"lo|veth.*"}[$__rate_interval])'
                    for way in ("receive", "transmit")
                },
                "Bps",
            ),
            Panel(
                "dcgm-exporter: utilization and errors",
                {
                    "utilization of GPU {{gpu}} (%)": 'DCGM_FI_DEV_GPU_UTIL{node="$node"}',
                    "last XID error of GPU {{gpu}}": 'DCGM_FI_DEV_XID_ERRORS{node="$node"}',
                },
            ),
        ),
        (
            Panel(
                "Jobs with GPUs",
                {
                    "job {{job}} ({{project}})": "count by (job, project) "
                    '(heliostat_job_gpu_info and on (uuid) heliostat_gpu_info{node="$node"})'
                },
                is_stacked=True,
            ),
        ),
    ),
    (query_variable("node", "label_values(heliostat_node_up, node)"),),
)

JOB = Dashboard(
    "job",
    "Heliostat: job",
    (
        (
            stat("GPUs", 'count(heliostat_job_gpu_info{job="$job"})'),
            stat("GPU utilization", 'job:heliostat_gpu_utilization_ratio:avg{job="$job"}', "percentunit"),
            stat("GPU memory", 'job:heliostat_gpu_memory_used_bytes:sum{job="$job"}', "bytes"),
        ),
        (
            percent(
                "GPU utilization",
                {
                    "{{node}} {{uuid}}": of_job("heliostat_gpu_utilization_ratio"),
                    "dcgm-exporter: {{node}} {{uuid}}": of_job(f"{by_uuid('DCGM_FI_DEV_GPU_UTIL')} / 100"),
                },
            ),
            Panel(
                "GPU memory",
                {
                    "{{node}} {{uuid}}": of_job("heliostat_gpu_memory_used_bytes"),
                    "dcgm-exporter: {{node}} {{uuid}}": of_job(f"{by_uuid('DCGM_FI_DEV_FB_USED')} * 1024 * 1024"),
                },
                "bytes",
            ),
        ),
        (
            Panel(
                "GPU temperature", {"{{node}} {{uuid}}": of_job("heliostat_gpu_temperature_celsius")}, "celsius"
            ),
            Panel(
                "GPU power",
                {
                    "{{node}} {{uuid}}": of_job("heliostat_gpu_power_watts"),
                    "dcgm-exporter: {{node}} {{uuid}}": of_job(by_uuid("DCGM_FI_DEV_POWER_USAGE")),
                },
                "watt",
            ),
        ),
        (
            percent(
                "CPU of its nodes, with their other jobs",
                {
                    "{{node}}": '1 - avg by (node) (rate(node_cpu_seconds_total{mode="idle"}[$__rate_interval]))'
                    ' and on (node) (heliostat_gpu_info and on (uuid) heliostat_job_gpu_info{job="$job"})'
                },
            ),
        ),
    ),
    (text_variable("job"),),
)

PROJECT = Dashboard(
    "project",
    "Heliostat: project",
    (
        (
            stat("Allocated GPUs", 'heliostat_project_allocated_gpus{project="$project"}'),
            stat("Running jobs with GPUs", 'count(count by (job) (heliostat_job_gpu_info{project="$project"}))'),
            stat("GPU utilization", PROJECT_UTILIZATION, "percentunit"),
        ),
        (
            Panel("Allocated GPUs", {"GPUs": 'heliostat_project_allocated_gpus{project="$project"}'}),
            percent("GPU utilization", {"mean": PROJECT_UTILIZATION}),
        ),
        (
            percent(
                "GPU utilization by job, the ten lowest",
                {"job {{job}}": 'bottomk(10, job:heliostat_gpu_utilization_ratio:avg{project="$project"})'},
            ),
            Panel(
                "GPU memory by job, the ten highest",
                {"job {{job}}": 'topk(10, job:heliostat_gpu_memory_used_bytes:sum{project="$project"})'},
                "bytes",
            ),
        ),
    ),
    (query_variable("project", "label_values(heliostat_project_allocated_gpus, project)"),),
    span="now-7d",
)

SERVER = Dashboard(
    "server",
    "Heliostat: server",
    (
        (
            stat("Up", 'up{job="heliostat"}'),
            Panel("Version", {"{{version}} ({{engine}})": "heliostat_build_info"}, kind="stat"),
            stat("Paused", "heliostat_paused"),
            stat("Engine up", "heliostat_engine_up"),
            stat("Queue stuck", "heliostat_queue_blocked_while_free"),
            stat("Failing loops", "count(increase(heliostat_loop_failures_total[15m]) > 0) or vector(0)"),
        ),
        (
            Panel(
                "Plan and commit (95%)",
                {
                    "plan": p95("heliostat_plan_duration_seconds"),
                    "commit": p95("heliostat_store_commit_duration_seconds"),
                },
                "s",
            ),
            Panel(
                "HTTP requests (95%), the ten slowest",
                {"{{method}} {{route}}": f"topk(10, {p95(HTTP_REQUESTS, 'method, route')})"},
                "s",
            ),
            Panel(
                "HTTP requests per second",
                {
                    "{{status_class}}": "sum by (status_class) "
                    "(rate(heliostat_http_request_duration_seconds_count[$__rate_interval]))"
                },
                "reqps",
            ),
        ),
        (
            Panel("Failures of loops in 15 minutes", {"{{loop}}": "increase(heliostat_loop_failures_total[15m])"}),
            Panel(
                "Time since the last success of a loop",
                {"{{loop}}": "time() - heliostat_loop_last_success_timestamp_seconds"},
                "s",
            ),
        ),
        (
            percent(
                "Starts compared with forecasts (80% should be within)",
                {
                    "within": "heliostat_forecast_within_ratio",
                    "early": "heliostat_forecast_early_ratio",
                    "late": "heliostat_forecast_late_ratio",
                },
            ),
            Panel("Compared forecasts", {"starts": "heliostat_forecast_outcomes"}),
            Panel("Sessions by state", {"{{state}}": "heliostat_sessions"}),
        ),
        (
            percent("Free space", {"{{area}}": "heliostat_area_free_bytes / heliostat_area_size_bytes"}),
            Panel("Responding exporters", {"{{job}}": "sum by (job) (up)"}),
        ),
    ),
)

DASHBOARDS = (CLUSTER, NODE, JOB, PROJECT, SERVER)
