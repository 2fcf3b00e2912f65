"""schedules and their firings"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("timing", sa.Text()),
        sa.Column("zone", sa.String(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("overlap", sa.String(), nullable=False),
        sa.Column("catch_up", sa.String(), nullable=False),
        sa.Column("epsilon_seconds", sa.Integer()),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("ends_after", sa.Integer()),
        sa.Column("soft_error", sa.Boolean(), nullable=False),
        sa.Column("next_at", sa.Float()),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("handled_at", sa.Float()),
        sa.Column("last_due_at", sa.Float()),
        sa.Column("fired", sa.Integer(), nullable=False),
        sa.Column("succeeded", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("failed_in_a_row", sa.Integer(), nullable=False),
        sa.Column("succeeded_at", sa.Float()),
        sa.Column("failed_at", sa.Float()),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["user"], ["users.name"]),
        sa.ForeignKeyConstraint(["project"], ["projects.name"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("user", "name"),
        sqlite_autoincrement=True,
    )
    op.create_index("schedules_by_next", "schedules", ["next_at"], sqlite_where=sa.text("next_at IS NOT NULL"))
    op.create_table(
        "schedule_parents",
        sa.Column("schedule_id", sa.Integer(), nullable=False),
        sa.Column("parent_id", sa.Integer(), nullable=False),
        sa.Column("is_met", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["schedule_id"], ["schedules.id"]),
        sa.ForeignKeyConstraint(["parent_id"], ["schedules.id"]),
        sa.PrimaryKeyConstraint("schedule_id", "parent_id"),
    )
    op.create_index("schedule_parents_by_parent", "schedule_parents", ["parent_id"])
    op.create_table(
        "firings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("schedule_id", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Float(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("job_id", sa.Integer()),
        sa.Column("last_job_id", sa.Integer()),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("by_hand", sa.Boolean(), nullable=False),
        sa.Column("ended_at", sa.Float()),
        sa.ForeignKeyConstraint(["schedule_id"], ["schedules.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("schedule_id", "due_at"),
        sqlite_autoincrement=True,
    )
    op.create_index("firings_by_job", "firings", ["job_id"])
    op.create_index("firings_open", "firings", ["schedule_id"], sqlite_where=sa.text("state = 'running'"))
