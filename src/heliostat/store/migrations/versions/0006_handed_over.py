"""which waiting jobs are in the queue of an engine that has one"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("handed_over", sa.Boolean(), nullable=False, server_default="0"))
