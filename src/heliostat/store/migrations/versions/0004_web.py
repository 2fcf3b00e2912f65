"""logins of browsers, news, and the orders in which the web lists jobs"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "web_logins",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("via", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.Column("user_agent", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["user"], ["users.name"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_index("web_logins_by_user", "web_logins", ["user"])
    op.create_table(
        "news",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("ends_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["author"], ["users.name"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("jobs_by_gpus", "jobs", ["gpus", "id"])
    for name, columns in (("jobs_finished_by_user", ["user", "state", "id"]), ("jobs_by_end", ["ended_at", "id"])):
        over = sa.text("ended_at IS NOT NULL")
        op.create_index(name, "jobs", columns, sqlite_where=over, postgresql_where=over)
