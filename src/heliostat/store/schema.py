"""The tables. Names of people, projects and departments never change, so they are the keys.

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
    """Of some rows only. A word for a database that we do not use would load all that is known of it."""
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
)

web_logins = Table(  # "session" is a kind of job here, so a browser's is a login
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

news = Table(
    "news",
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
    Column("handed_over", Boolean, nullable=False, server_default="0"),
    Column("origin", String),  # of one that ran elsewhere: "slurm:CLUSTER:NUMBER"
    Column("after", Text, nullable=False, server_default="[]"),
    Column("parents_left", Integer, nullable=False, server_default="0"),
    Column("begin_at", Float),
    Column("environment", String),
    Column("retry", Text, nullable=False, server_default="{}"),
    Column("notify", Text, nullable=False, server_default="[]"),
    Column("part", Text),
    # Most jobs are over: these indexes hold only the few that are not, or serve the filters of the job list.
    partial_index("jobs_unfinished", "user", "id", where="ended_at IS NULL"),
    partial_index("jobs_finished", "state", "id", where="ended_at IS NOT NULL"),
    partial_index("jobs_finished_by_user", "user", "state", "id", where="ended_at IS NOT NULL"),
    partial_index("jobs_by_end", "ended_at", "id", where="ended_at IS NOT NULL"),
    # All that lists are filtered and sorted by, so that they need not look into the wide rows of the table.
    partial_index(
        "jobs_listed", "state", "project", "user", "gpus", "ended_at", "name", where="ended_at IS NOT NULL"
    ),
    Index("jobs_by_gpus", "gpus", "id"),
    Index("jobs_by_user", "user", "id"),
    Index("jobs_by_project", "project", "id"),
    Index("jobs_by_array", "array_id", "id"),
    # A past job is brought in once, however often it is tried; numbers of another system may come again.
    partial_index("jobs_by_origin", "origin", "submitted_at", unique=True, where="origin IS NOT NULL"),
    partial_index("jobs_by_environment", "environment", where="environment IS NOT NULL"),
)

dependencies = Table(
    "dependencies",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("parent_id", ForeignKey("jobs.id"), primary_key=True),
    Column("rule", String, primary_key=True),
    Column("is_settled", Boolean, nullable=False, server_default="0"),  # the parent is over, and the child knows
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

attempt_usage = Table(  # what engines that keep accounts say of attempts that are over
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

records = Table(  # what is kept so that jobs can be repeated; each content once
    "records",
    metadata,
    Column("id", String, primary_key=True),
    Column("content", Text, nullable=False),
)

job_records = Table(
    "job_records",
    metadata,
    Column("job_id", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),  # 0: of its submission
    Column("record_id", ForeignKey("records.id"), nullable=False),
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
    Column("made_at", Float, nullable=False),
    Column("earliest_at", Float, nullable=False),
    Column("latest_at", Float, nullable=False),
    Column("started_at", Float),
    Index("forecasts_by_start", "started_at"),
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

slurm_made = Table(
    "slurm_made",
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
    Column("made_by", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("build_job", Integer, nullable=False),
    Column("lock", Text),
    Column("size_bytes", Integer),
)

environment_uses = Table(  # who has asked for it, and when last
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
