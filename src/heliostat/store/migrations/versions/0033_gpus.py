"""the history of GPUs, and those that failed"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gpus",
        sa.Column("uuid", sa.String, primary_key=True),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("number", sa.String, nullable=False),
        sa.Column("first_seen_at", sa.Float, nullable=False),
        sa.Column("used_seconds", sa.Float, nullable=False, server_default="0"),
        sa.Column("peak_temperature", sa.Integer),
        sa.Column("failed_at", sa.Float),
        sa.Column("failed_kind", sa.String),
        sa.Column("returned_at", sa.Float),
    )
    op.create_table(
        "gpu_errors",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("uuid", sa.String, sa.ForeignKey("gpus.uuid"), nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("job_id", sa.Integer),
        sa.Column("message", sa.String, unique=True),
    )
    op.create_index("gpu_errors_by_gpu", "gpu_errors", ["uuid", "at"])
