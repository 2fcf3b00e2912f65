"""Tables of the database. Names of users, projects and departments never change, so they are the keys.

Lists and specs are JSON in text columns, written and read by rows.py: the hot statements bypass type conversion.
"""

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """An index on some rows. Naming other database dialects would import them."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where))


departments = Table(
    "departments",
    metadata,
    Column("name", String, primary_key=True),
    Column("share", Integer, nullable=False, server_default="1"),
)

projects = Table(
    "projects",
    metadata,
    Column("name", String, primary_key=True),
    Column("department", ForeignKey("departments.name"), nullable=False),
    Column("share", Integer, nullable=False, server_default="1"),
    Column("data_class", Integer, nullable=False, server_default="0"),
    Column("closes_at", Float),
)

quotas = Table(
    "quotas",
    metadata,
    Column("scope", String, primary_key=True),  # user, project, department
    Column("name", String, primary_key=True),
    Column("running_gpus", Integer),
    Column("queued_gpus", Integer),
    Column("gpu_hours_per_month", Integer),
)

reservations = Table(
    "reservations",
    metadata,
    Column("name", String, primary_key=True),
    Column("project", ForeignKey("projects.name")),
    Column("nodes", Text, nullable=False),
    Column("gpus_per_node", Integer),
    Column("starts_at", Float, nullable=False),
    Column("ends_at", Float, nullable=False),
    Column("weeks", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("time_zone", String, nullable=False, server_default="UTC"),
)

users = Table(
    "users",
    metadata,
    Column("name", String, primary_key=True),
    Column("role", String, nullable=False),
    Column("unix_user", String),
    Column("active", Boolean, nullable=False),
    Column("password_hash", String),
    Column("created_at", Float, nullable=False),
)

memberships = Table(
    "memberships",
    metadata,
    Column("user", ForeignKey("users.name"), primary_key=True),
    Column("project", ForeignKey("projects.name"), primary_key=True),
    Column("role", String, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("user", ForeignKey("users.name"), nullable=False),
    Column("name", String, nullable=False),
    Column("digest", String, nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("last_used_at", Float),
    Column("revoked_at", Float),
    Column("scope", String, nullable=False, server_default="full"),
)

web_logins = Table(  # "session" is a kind of job, so this is a login
    "web_logins",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("user", ForeignKey("users.name"), nullable=False),
    Column("digest", String, nullable=False, unique=True),
    Column("via", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("seen_at", Float, nullable=False),
    Column("user_agent", String, nullable=False),
    Column("address", String, nullable=False),
    Column("ended_at", Float),
    Index("web_logins_by_user", "user"),
)

announcements = Table(
    "announcements",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("text", Text, nullable=False),
    Column("author", ForeignKey("users.name"), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("ends_at", Float),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", Float, nullable=False),
    Column("user", String, nullable=False),
    Column("via", String, nullable=False),
    Column("address", String, nullable=False),
    Column("action", String, nullable=False),
    Column("target", String, nullable=False),
    Column("detail", JSON, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("state", String, nullable=False),
    Column("user", ForeignKey("users.name"), nullable=False),
    Column("unix_user", String, nullable=False),
    Column("project", ForeignKey("projects.name"), nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("memory_mib", Integer, nullable=False),
    Column("gpus", Float, nullable=False),
    Column("gpu_type", String),
    Column("gpu_memory_mib", Integer),
    Column("placement", Text, nullable=False, server_default="{}"),
    Column("spec", Text, nullable=False),
    Column("time_limit_seconds", Integer),
    Column("priority", Integer, nullable=False),
    Column("max_retries", Integer, nullable=False),
    Column("retries", Integer, nullable=False),
    Column("array_id", Integer),
    Column("array_index", Integer),
    Column("array_limit", Integer),
    Column("attempt", Integer, nullable=False),
    Column("node", String),
    Column("devices", Text, nullable=False),
    Column("submitted_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("exit_code", Integer),
    Column("reason", Text),
    Column("stop_requested", String),
    Column("places", Text, nullable=False, server_default="[]"),
    Column("priority_class", String, nullable=False, server_default="normal"),
    Column("preemptible", Boolean, nullable=False, server_default="0"),
    Column("preemptions", Integer, nullable=False, server_default="0"),
    Column("overtime", Boolean, nullable=False, server_default="0"),
    Column("checkpointed_at", Float),
    Column("priority_everywhere", Boolean, nullable=False, server_default="0"),
    Column("waited_seconds", Float, nullable=False, server_default="0"),
    Column("waits_since", Float),
    Column("booked_at", Float),
    Column("dispatched", Boolean, nullable=False, server_default="0"),
    Column("origin", String),  # of an imported job: "slurm:CLUSTER:NUMBER"
    Column("after", Text, nullable=False, server_default="[]"),
    Column("parents_left", Integer, nullable=False, server_default="0"),
    Column("begin_at", Float),
    Column("environment", String),
    Column("retry", Text, nullable=False, server_default="{}"),
    Column("notify", Text, nullable=False, server_default="[]"),
    Column("part", Text),
    Column("credit_gpu_hours", Float, nullable=False, server_default="0"),
    # Most jobs have ended: these indexes contain only unfinished jobs, or serve the filters of the job list.
    partial_index("jobs_unfinished", "user", "id", where="ended_at IS NULL"),
    partial_index("jobs_finished", "state", "id", where="ended_at IS NOT NULL"),
    partial_index("jobs_finished_by_user", "user", "state", "id", where="ended_at IS NOT NULL"),
    partial_index("jobs_by_end", "ended_at", "id", where="ended_at IS NOT NULL"),
    # All columns for filters and sorting, so that lists do not read the wide rows of the table.
    partial_index(
        "jobs_listed", "state", "project", "user", "gpus", "ended_at", "name", where="ended_at IS NOT NULL"
    ),
    Index("jobs_by_gpus", "gpus", "id"),
    Index("jobs_by_user", "user", "id"),
    Index("jobs_by_project", "project", "id"),
    Index("jobs_by_array", "array_id", "id"),
    # A past job is imported only once; other systems may reuse their job numbers.
    partial_index("jobs_by_origin", "origin", "submitted_at", unique=True, where="origin IS NOT NULL"),
    partial_index("jobs_of_services", "user", "name", "id", where="kind = 'service' AND ended_at IS NOT NULL"),
    partial_index("jobs_with_credit", "user", "project", where="credit_gpu_hours > 0"),
    partial_index("jobs_by_environment", "environment", where="environment IS NOT NULL"),
)

dependencies = Table(
    "dependencies",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("parent_id", ForeignKey("jobs.id"), primary_key=True),
    Column("rule", String, primary_key=True),
    Column(
        "is_settled", Boolean, nullable=False, server_default="0"
    ),  # the parent has ended and the child was updated
    Index("dependencies_by_parent", "parent_id", "job_id"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("node", String, nullable=False),
    Column("devices", Text, nullable=False),
    Column("state", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("exit_code", Integer),
    Column("reason", Text),
    Column("places", Text, nullable=False, server_default="[]"),
    Column("gpu_type", String),
    Index("attempts_by_end", "ended_at"),
)

attempt_usage = Table(  # usage of ended attempts, reported by engines with accounting
    "attempt_usage",
    metadata,
    Column("job_id", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("elapsed_seconds", Float, nullable=False),
    Column("cpu_seconds", Float),
    Column("memory_mib", Float),
    Column("gpu_seconds", Float),
    Column("out_of_memory", Boolean, nullable=False, server_default="0"),
)

idle_jobs = Table(  # jobs on the idle ladder, and answers of their owners
    "idle_jobs",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("step", String),
    Column("step_at", Float),
    Column("idle_since", Float),
    Column("kept_until", Float),
    Column("answers", Integer, nullable=False, server_default="0"),
    Column("returned_gpu_hours", Float, nullable=False, server_default="0"),
)

provenance = Table(  # data to repeat jobs; each content once
    "provenance",
    metadata,
    Column("id", String, primary_key=True),
    Column("content", Text, nullable=False),
)

job_provenance = Table(
    "job_provenance",
    metadata,
    Column("job_id", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),  # 0: the submission
    Column("provenance_id", ForeignKey("provenance.id"), nullable=False),
)

reruns = Table(
    "reruns",
    metadata,
    Column("job_id", Integer, primary_key=True, autoincrement=False),
    Column("of_job_id", Integer, nullable=False),
    Index("reruns_by_job", "of_job_id", "job_id"),
)

forecasts = Table(
    "forecasts",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("engine", String, nullable=False),
    Column("made_at", Float, nullable=False),
    Column("computed_earliest_at", Float, nullable=False),  # before calibration
    Column("computed_likely_at", Float, nullable=False),
    Column("computed_latest_at", Float, nullable=False),
    Column("earliest_at", Float, nullable=False),  # as shown
    Column("likely_at", Float, nullable=False),
    Column("latest_at", Float, nullable=False),
    Column("started_at", Float),
    Index("forecasts_by_start", "started_at"),
    Index("forecasts_by_time", "engine", "made_at"),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("job_id", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("kind", String, nullable=False),
    Column("state", String, nullable=False),
    Column("detail", Text),
    Index("events_by_job", "job_id", "id"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("user", ForeignKey("users.name"), nullable=False),
    Column("key", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("job_ids", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("user", "key"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", String, primary_key=True),
    Column("state", String, nullable=False),
    Column("reason", Text),
    Column("labels", Text, nullable=False, server_default="{}"),
    Column("data_class", Integer, nullable=False, server_default="0"),
    Column("min_data_class", Integer, nullable=False, server_default="0"),
    Column("splits_devices", Boolean, nullable=False, server_default="0"),
)

gpus = Table(  # cards that this installation has used or that had an error
    "gpus",
    metadata,
    Column("uuid", String, primary_key=True),
    Column("node", String, nullable=False),
    Column("number", String, nullable=False),
    Column("first_seen_at", Float, nullable=False),
    Column("used_seconds", Float, nullable=False, server_default="0"),  # by jobs
    Column("peak_temperature", Integer),
    Column("failed_at", Float),  # taken out since then
    Column("failed_kind", String),
    Column("returned_at", Float),  # last use after a failure
)

gpu_errors = Table(
    "gpu_errors",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("uuid", ForeignKey("gpus.uuid"), nullable=False),
    Column("kind", String, nullable=False),
    Column("at", Float, nullable=False),
    Column("job_id", Integer),
    Column("message", String, unique=True),
    Index("gpu_errors_by_gpu", "uuid", "at"),
)

slurm_associations = Table(
    "slurm_associations",
    metadata,
    Column("account", String, primary_key=True),
    Column("user", String, primary_key=True),
)

environments = Table(  # the state of each is that of its build job
    "environments",
    metadata,
    Column("digest", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("files", Text, nullable=False),
    Column("python", String),
    Column("platform", String, nullable=False),
    Column("owner", String),
    Column("created_by", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("build_job", Integer, nullable=False),
    Column("lock", Text),
    Column("size_bytes", Integer),
)

environment_uses = Table(  # users who requested it, and their last use
    "environment_uses",
    metadata,
    Column("digest", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("used_at", Float, nullable=False),
)

proxy_grants = Table(
    "proxy_grants",
    metadata,
    Column("digest", String, primary_key=True),
    Column("user", ForeignKey("users.name"), nullable=False),
    Column("job_id", Integer, nullable=False),
    Column("port", Integer),
    Column("login_id", Integer),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("service", String),
    Column("address", String),
    Index("proxy_grants_by_user", "user", "created_at"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("app", String, nullable=False),
    Column("secret", String, nullable=False),
    Column("ready_attempt", Integer, nullable=False, server_default="0"),
    Column("active_at", Float),
    Column("idle_warned_at", Float),
    Column("end_warned_at", Float),
    Column("environment", String),
    Column("keep_idle", Boolean, nullable=False, server_default="0"),
)

session_shares = Table(
    "session_shares",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("user", ForeignKey("users.name"), primary_key=True),
    Column("created_at", Float, nullable=False),
)

notebooks = Table(
    "notebooks",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("environment", String, nullable=False),
)

# Images built by users: names and pushes.

image_names = Table(  # current digest of each name
    "image_names",
    metadata,
    Column("user", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("digest", String, nullable=False),  # of its environment
    Column("named_at", Float, nullable=False),
    Index("image_names_by_digest", "digest"),
)

image_pushes = Table(  # the state of each is that of its job
    "image_pushes",
    metadata,
    Column("job_id", Integer, primary_key=True),
    Column("digest", String, nullable=False),
    Column("target", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("pushed_digest", String),
    Index("image_pushes_by_digest", "digest"),
)

# Notifications, deliveries, and the position in the event log.

notifications = Table(
    "notifications",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("user", ForeignKey("users.name"), nullable=False),
    Column("project", ForeignKey("projects.name")),
    Column("channel", String, nullable=False),
    Column("address", Text, nullable=False),
    Column("triggers", String, nullable=False),
    Column("salt", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("after_event", Integer, nullable=False),
    Column("sent_at", Float),
    Column("problem", Text),
    Column("tested_at", Float),
    Index("notifications_by_user", "user"),
)

notification_deliveries = Table(
    "notification_deliveries",
    metadata,
    Column("id", String, primary_key=True),
    Column("notification_id", ForeignKey("notifications.id", ondelete="CASCADE"), nullable=False),
    Column("event_ids", Text, nullable=False),
    Column("more", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("due_at", Float, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("problem", Text),
    Column("report", String),
    Column("alerts", Text, nullable=False, server_default="[]"),
    Index("notification_deliveries_by_state", "state", "due_at"),
    Index("notification_deliveries_by_notification", "notification_id", "state"),
)

notification_cursor = Table(  # one row: deliveries exist for all matching events up to this one
    "notification_cursor",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("event_id", Integer, nullable=False),
)

firing_alerts = Table(  # an alert in this table was reported and has not ended: repeats are ignored
    "firing_alerts",
    metadata,
    Column("fingerprint", String, primary_key=True),
    Column("seen_at", Float, nullable=False),
)

# Schedules. An index finds the next due one; a firing is identified by its due time.

schedules = Table(
    "schedules",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("user", ForeignKey("users.name"), nullable=False),
    Column("project", ForeignKey("projects.name"), nullable=False),
    Column("state", String, nullable=False),
    Column("timing", Text),
    Column("zone", String, nullable=False),
    Column("request", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("overlap", String, nullable=False),
    Column("catch_up", String, nullable=False),
    Column("epsilon_seconds", Integer),
    Column("retries", Integer, nullable=False),
    Column("ends_after", Integer),
    Column("soft_error", Boolean, nullable=False),
    Column("next_at", Float),
    Column("version", Integer, nullable=False),
    Column("handled_at", Float),
    Column("last_due_at", Float),
    Column("fired", Integer, nullable=False),
    Column("succeeded", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("failed_in_a_row", Integer, nullable=False),
    Column("succeeded_at", Float),
    Column("failed_at", Float),
    Column("document", Text, nullable=False),
    UniqueConstraint("user", "name"),
    partial_index("schedules_by_next", "next_at", where="next_at IS NOT NULL"),
    sqlite_autoincrement=True,
)

schedule_parents = Table(
    "schedule_parents",
    metadata,
    Column("schedule_id", ForeignKey("schedules.id"), primary_key=True),
    Column("parent_id", ForeignKey("schedules.id"), primary_key=True),
    Column("is_met", Boolean, nullable=False),  # it has succeeded since the last firing of the child
    Index("schedule_parents_by_parent", "parent_id"),
)

firings = Table(
    "firings",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("schedule_id", ForeignKey("schedules.id"), nullable=False),
    Column("due_at", Float, nullable=False),
    Column("at", Float, nullable=False),
    Column("state", String, nullable=False),
    Column("reason", Text),
    Column("job_id", Integer),
    Column("last_job_id", Integer),
    Column("tries", Integer, nullable=False),
    Column("count", Integer, nullable=False),
    Column("by_hand", Boolean, nullable=False),
    Column("ended_at", Float),
    UniqueConstraint("schedule_id", "due_at"),  # one firing for each due time
    Index("firings_by_job", "job_id"),
    partial_index("firings_open", "schedule_id", where="state = 'running'"),
    sqlite_autoincrement=True,
)

# Services and their replicas.

services = Table(
    "services",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("user", ForeignKey("users.name"), nullable=False),
    Column("project", ForeignKey("projects.name"), nullable=False),
    Column("state", String, nullable=False),
    Column("request", Text, nullable=False),
    Column("replicas", Integer, nullable=False),
    Column("visibility", String, nullable=False),
    Column("secret", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("check", Text, nullable=False),
    Column("surge", Integer, nullable=False),
    Column("drain_seconds", Float, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("failed_at", Float),
    Column("problem", Text),
    Column("retry_at", Float),
    sqlite_autoincrement=True,
)

service_replicas = Table(
    "service_replicas",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("service_id", ForeignKey("services.id"), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("health", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("healthy_at", Float),
    Column("problem", Text),
    Column("draining_at", Float),
    Column("is_over", Boolean, nullable=False),
    Index("service_replicas_by_service", "service_id", "job_id"),
    partial_index("service_replicas_live", "service_id", where="is_over = 0"),
)

# Workflows and sweeps, and outputs and metrics of their jobs.

workflows = Table(
    "workflows",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("user", ForeignKey("users.name"), nullable=False),
    Column("project", ForeignKey("projects.name"), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("params", Text, nullable=False),
    Column(
        "document", Text, nullable=False
    ),  # as submitted; private to its owner, because env may contain secrets
    Index("workflows_by_user", "user", "id"),
    sqlite_autoincrement=True,
)

workflow_jobs = Table(
    "workflow_jobs",
    metadata,
    Column("workflow_id", ForeignKey("workflows.id"), primary_key=True),
    Column("key", String, primary_key=True),
    Column("job_id", Integer, nullable=False),
    Column("step", String, nullable=False),
    Column("place", Integer, nullable=False),
    Column("values", Text, nullable=False),
    Column("needs", Text, nullable=False),
    Column("condition", Text),
    Column("goes_on", Boolean, nullable=False),
    Column("is_late", Boolean, nullable=False),
    Column("outcome", String),
    Column("is_after_failure", Boolean, nullable=False),
    Column("earlier", Text, nullable=False),
    Index("workflow_jobs_by_job", "job_id", unique=True),
)

job_outputs = Table(  # output values of an ended job
    "job_outputs",
    metadata,
    Column("job_id", Integer, primary_key=True, autoincrement=False),
    Column("content", Text, nullable=False),
)

job_metrics = Table(
    "job_metrics",
    metadata,
    Column("job_id", Integer, primary_key=True, autoincrement=False),
    Column("content", Text, nullable=False),
)

sweeps = Table(
    "sweeps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("user", ForeignKey("users.name"), nullable=False),
    Column("project", ForeignKey("projects.name"), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("array_id", Integer, nullable=False),
    Column("first_job", Integer, nullable=False),
    Column("last_job", Integer, nullable=False),
    Column("table", Text, nullable=False),  # the values of each element
    Index("sweeps_by_user", "user", "id"),
    Index("sweeps_by_job", "first_job", unique=True),
    sqlite_autoincrement=True,
)
