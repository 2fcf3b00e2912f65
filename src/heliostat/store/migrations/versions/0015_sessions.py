"""sessions, whom they are shared with, and who may use the proxy"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "proxy_grants",
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("user", sa.String(), sa.ForeignKey("users.name"), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("port", sa.Integer()),
        sa.Column("login_id", sa.Integer()),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
    )
    op.create_index("proxy_grants_by_user", "proxy_grants", ["user", "created_at"])
    op.create_table(
        "sessions",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
        sa.Column("app", sa.String(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("ready_attempt", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("active_at", sa.Float()),
        sa.Column("idle_warned_at", sa.Float()),
        sa.Column("end_warned_at", sa.Float()),
    )
    op.create_table(
        "session_shares",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("user", sa.String(), sa.ForeignKey("users.name"), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "user"),
    )
