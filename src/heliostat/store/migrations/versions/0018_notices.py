"""notices, and what jobs want to be tried again and told for"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("retry", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("jobs", sa.Column("notify", sa.Text(), nullable=False, server_default="[]"))
    op.create_table(
        "notices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("project", sa.String()),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("occasions", sa.String(), nullable=False),
        sa.Column("salt", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("after_event", sa.Integer(), nullable=False),
        sa.Column("sent_at", sa.Float()),
        sa.Column("problem", sa.Text()),
        sa.Column("tested_at", sa.Float()),
        sa.ForeignKeyConstraint(["user"], ["users.name"]),
        sa.ForeignKeyConstraint(["project"], ["projects.name"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("notices_by_user", "notices", ["user"])
    op.create_table(
        "notice_deliveries",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("notice_id", sa.Integer(), nullable=False),
        sa.Column("event_ids", sa.Text(), nullable=False),
        sa.Column("more", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("due_at", sa.Float(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("problem", sa.Text()),
        sa.ForeignKeyConstraint(["notice_id"], ["notices.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("notice_deliveries_by_state", "notice_deliveries", ["state", "due_at"])
    op.create_index("notice_deliveries_by_notice", "notice_deliveries", ["notice_id", "state"])
    op.create_table(
        "notice_cursor",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("event_id", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
