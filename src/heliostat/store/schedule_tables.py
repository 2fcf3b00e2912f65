"""The tables of schedules. Who is due next is found in an index; what was fired is known by when it was due."""

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from heliostat.store.schema import metadata, partial_index

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
    Column("is_met", Boolean, nullable=False),  # it has succeeded since the child fired last
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
    UniqueConstraint("schedule_id", "due_at"),  # each happens once
    Index("firings_by_job", "job_id"),
    partial_index("firings_open", "schedule_id", where="state = 'running'"),
    sqlite_autoincrement=True,
)
