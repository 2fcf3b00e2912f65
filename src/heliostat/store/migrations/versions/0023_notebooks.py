"""what batch notebooks are started with"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notebooks",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
        sa.Column("environment", sa.String(), nullable=False),
    )
