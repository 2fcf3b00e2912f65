"""tables and columns by the names that the API and the documentation use"""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_TABLES = {
    "news": "announcements",
    "notices": "notifications",
    "notice_deliveries": "notification_deliveries",
    "notice_cursor": "notification_cursor",
    "records": "provenance",
    "job_records": "job_provenance",
    "slurm_made": "slurm_associations",
}
_COLUMNS = (
    ("notifications", "occasions", "triggers"),
    ("notification_deliveries", "notice_id", "notification_id"),
    ("job_provenance", "record_id", "provenance_id"),
    ("environments", "made_by", "created_by"),
    ("jobs", "handed_over", "dispatched"),
)
_INDEXES = (
    ("notices_by_user", "notifications_by_user", "notifications", ["user"]),
    (
        "notice_deliveries_by_state",
        "notification_deliveries_by_state",
        "notification_deliveries",
        ["state", "due_at"],
    ),
    (
        "notice_deliveries_by_notice",
        "notification_deliveries_by_notification",
        "notification_deliveries",
        ["notification_id", "state"],
    ),
)


def upgrade() -> None:
    for old, new in _TABLES.items():
        op.rename_table(old, new)
    for table, old, new in _COLUMNS:
        op.alter_column(table, old, new_column_name=new)
    for old, new, table, columns in _INDEXES:
        op.drop_index(old, table_name=table)
        op.create_index(new, table, columns)
    op.execute("UPDATE events SET kind = 'dispatched' WHERE kind = 'handed_over'")
