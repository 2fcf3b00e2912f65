"""what engines that keep accounts say of attempts; and past jobs of other systems"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "attempt_usage",
        sa.Column("job_id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("elapsed_seconds", sa.Float(), nullable=False),
        sa.Column("cpu_seconds", sa.Float()),
        sa.Column("memory_mib", sa.Float()),
        sa.Column("gpu_seconds", sa.Float()),
        sa.Column("out_of_memory", sa.Boolean(), nullable=False, server_default="0"),
    )
    op.add_column("jobs", sa.Column("origin", sa.String()))
    known = sa.text("origin IS NOT NULL")
    op.create_index(
        "jobs_by_origin",
        "jobs",
        ["origin", "submitted_at"],
        unique=True,
        sqlite_where=known,
        postgresql_where=known,
    )
