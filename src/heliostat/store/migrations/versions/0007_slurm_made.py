"""whom we have put into which of Slurm's accounts"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "slurm_made",
        sa.Column("account", sa.String(), primary_key=True),
        sa.Column("user", sa.String(), primary_key=True),
    )
