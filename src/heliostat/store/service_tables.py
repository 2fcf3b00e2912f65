"""The tables of services and their replicas."""

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, String, Table, Text

from heliostat.store.schema import metadata, partial_index

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
