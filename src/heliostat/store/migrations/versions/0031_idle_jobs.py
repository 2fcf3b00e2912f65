"""jobs on the idle ladder, credit for GPUs that were given back early, and monthly reports"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("credit_gpu_hours", sa.Float, nullable=False, server_default="0"))
    op.create_index("jobs_with_credit", "jobs", ["user", "project"], sqlite_where=sa.text("credit_gpu_hours > 0"))
    op.add_column("notification_deliveries", sa.Column("report", sa.String))
    op.create_table(
        "idle_jobs",
        sa.Column("job_id", sa.Integer, sa.ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("step", sa.String),
        sa.Column("step_at", sa.Float),
        sa.Column("idle_since", sa.Float),
        sa.Column("kept_until", sa.Float),
        sa.Column("answers", sa.Integer, nullable=False, server_default="0"),
        sa.Column("returned_gpu_hours", sa.Float, nullable=False, server_default="0"),
    )
