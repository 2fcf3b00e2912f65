"""The tables of notices: who wants to be told, what is on its way, and how far the log of events was read."""

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, String, Table, Text

from heliostat.store.schema import metadata

notices = Table(
    "notices",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("user", ForeignKey("users.name"), nullable=False),
    Column("project", ForeignKey("projects.name")),
    Column("channel", String, nullable=False),
    Column("address", Text, nullable=False),
    Column("occasions", String, nullable=False),
    Column("salt", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("after_event", Integer, nullable=False),
    Column("sent_at", Float),
    Column("problem", Text),
    Column("tested_at", Float),
    Index("notices_by_user", "user"),
)

deliveries = Table(
    "notice_deliveries",
    metadata,
    Column("id", String, primary_key=True),
    Column("notice_id", ForeignKey("notices.id", ondelete="CASCADE"), nullable=False),
    Column("event_ids", Text, nullable=False),
    Column("more", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("due_at", Float, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("problem", Text),
    Index("notice_deliveries_by_state", "state", "due_at"),
    Index("notice_deliveries_by_notice", "notice_id", "state"),
)

cursor = Table(  # one row: all events up to this one are in deliveries, as far as somebody wants to be told
    "notice_cursor",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("event_id", Integer, nullable=False),
)
