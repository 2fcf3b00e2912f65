"""The metrics of Heliostat. Alerts and dashboards use these names: docs/monitoring.md lists them."""

from heliostat.metrics import MetricFamily

JOBS = MetricFamily("heliostat_jobs", "gauge", "Unfinished jobs.", ("state",))
JOB_WAIT = MetricFamily(
    "heliostat_job_wait_seconds", "histogram", "Time in the queue of jobs that have started.", ("priority_class",)
)
JOB_STARTS = MetricFamily("heliostat_job_starts_total", "counter", "Starts of jobs.")
JOB_ENDS = MetricFamily(
    "heliostat_job_ends_total", "counter", "Ends of jobs, by final state or out_of_memory.", ("cause",)
)
PENDING_OLDEST = MetricFamily(
    "heliostat_pending_oldest_seconds", "gauge", "Longest time in the queue of a job that may start now."
)
QUEUE_BLOCKED = MetricFamily(
    "heliostat_queue_blocked_while_free",
    "gauge",
    "1 if for five minutes no job has started although one waits that fits and that no rule holds back.",
)
PLAN_DURATION = MetricFamily("heliostat_plan_duration_seconds", "histogram", "Duration of scheduling plans.")
COMMIT_DURATION = MetricFamily(
    "heliostat_store_commit_duration_seconds", "histogram", "Duration of database commits until they are on disk."
)
LOOP_FAILURES = MetricFamily(
    "heliostat_loop_failures_total", "counter", "Failed calls of background loops.", ("loop",)
)
LOOP_SUCCESS = MetricFamily(
    "heliostat_loop_last_success_timestamp_seconds", "gauge", "Time of the last call that succeeded.", ("loop",)
)
REQUEST_DURATION = MetricFamily(
    "heliostat_http_request_duration_seconds",
    "histogram",
    "Time until the response to an HTTP request begins.",
    ("method", "route", "status_class"),
)
FORECAST_WITHIN = MetricFamily(
    "heliostat_forecast_within_ratio", "gauge", "Fraction of recent job starts within their forecast range."
)
FORECAST_EARLY = MetricFamily(
    "heliostat_forecast_early_ratio", "gauge", "Fraction of recent job starts before their forecast range."
)
FORECAST_LATE = MetricFamily(
    "heliostat_forecast_late_ratio", "gauge", "Fraction of recent job starts after their forecast range."
)
FORECAST_OUTCOMES = MetricFamily(
    "heliostat_forecast_outcomes", "gauge", "Recent job starts that were compared with their forecast."
)
SESSIONS = MetricFamily("heliostat_sessions", "gauge", "Unfinished sessions.", ("state",))
PAUSED = MetricFamily("heliostat_paused", "gauge", "1 if Heliostat is paused and starts no jobs.")
ENGINE_UP = MetricFamily("heliostat_engine_up", "gauge", "1 if the engine answers.")
BUILD_INFO = MetricFamily("heliostat_build_info", "gauge", "1, with version and engine.", ("version", "engine"))
NODE_UP = MetricFamily("heliostat_node_up", "gauge", "1 if the node is not down.", ("node",))
NODE_STATE = MetricFamily("heliostat_node_state", "gauge", "1 for the current state.", ("node", "state"))
NODE_CPUS = MetricFamily("heliostat_node_cpus", "gauge", "CPUs for jobs.", ("node",))
NODE_CPUS_ALLOCATED = MetricFamily("heliostat_node_cpus_allocated", "gauge", "CPUs allocated to jobs.", ("node",))
NODE_MEMORY = MetricFamily("heliostat_node_memory_bytes", "gauge", "Memory for jobs.", ("node",))
NODE_MEMORY_ALLOCATED = MetricFamily(
    "heliostat_node_memory_allocated_bytes", "gauge", "Memory allocated to jobs.", ("node",)
)
GPU_INFO = MetricFamily("heliostat_gpu_info", "gauge", "1 for each GPU.", ("node", "uuid", "type"))
GPU_ALLOCATED = MetricFamily(
    "heliostat_gpu_allocated", "gauge", "Fraction of the GPU that is allocated to jobs.", ("node", "uuid")
)
GPU_UTILIZATION = MetricFamily(
    "heliostat_gpu_utilization_ratio", "gauge", "Fraction of time in which the GPU computes.", ("node", "uuid")
)
GPU_MEMORY_USED = MetricFamily("heliostat_gpu_memory_used_bytes", "gauge", "Used GPU memory.", ("node", "uuid"))
GPU_TEMPERATURE = MetricFamily("heliostat_gpu_temperature_celsius", "gauge", "GPU temperature.", ("node", "uuid"))
GPU_POWER = MetricFamily("heliostat_gpu_power_watts", "gauge", "Power that the GPU draws.", ("node", "uuid"))
GPU_FAULT = MetricFamily(
    "heliostat_gpu_fault", "gauge", "1 for each GPU that an error took out of use.", ("node", "uuid", "kind")
)
GPU_USABLE = MetricFamily(
    "heliostat_gpu_usable", "gauge", "0 if the GPU has a problem or is used by other processes.", ("node", "uuid")
)
JOB_GPU_INFO = MetricFamily(
    "heliostat_job_gpu_info", "gauge", "1 for each GPU of a running job.", ("job", "uuid", "project")
)
PROJECT_GPUS = MetricFamily(
    "heliostat_project_allocated_gpus", "gauge", "GPUs allocated to jobs of the project.", ("project",)
)
AREA_FREE = MetricFamily("heliostat_area_free_bytes", "gauge", "Free space of a folder of Heliostat.", ("area",))
AREA_SIZE = MetricFamily("heliostat_area_size_bytes", "gauge", "Size of its file system.", ("area",))
