"""The tables of workflows and sweeps, and of what their jobs hand on and report."""

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, String, Table, Text

from heliostat.store.schema import metadata

workflows = Table(
    "workflows",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("user", ForeignKey("users.name"), nullable=False),
    Column("project", ForeignKey("projects.name"), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("params", Text, nullable=False),
    Column("document", Text, nullable=False),  # as it was sent: its owner's, as env may hold secrets
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

job_outputs = Table(  # what a job has handed on, when it was over
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
