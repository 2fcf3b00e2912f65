"""forecasts before and after calibration; earlier ones, of which only the range is known, are removed"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("forecasts")
    op.create_table(
        "forecasts",
        sa.Column("job_id", sa.Integer, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("engine", sa.String, nullable=False),
        sa.Column("made_at", sa.Float, nullable=False),
        sa.Column("computed_earliest_at", sa.Float, nullable=False),
        sa.Column("computed_likely_at", sa.Float, nullable=False),
        sa.Column("computed_latest_at", sa.Float, nullable=False),
        sa.Column("earliest_at", sa.Float, nullable=False),
        sa.Column("likely_at", sa.Float, nullable=False),
        sa.Column("latest_at", sa.Float, nullable=False),
        sa.Column("started_at", sa.Float),
    )
    op.create_index("forecasts_by_start", "forecasts", ["started_at"])
    op.create_index("forecasts_by_time", "forecasts", ["engine", "made_at"])
