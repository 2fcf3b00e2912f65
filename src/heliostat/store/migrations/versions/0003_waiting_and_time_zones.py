"""how long jobs have waited, whose priority counts everywhere, and the time zones of reservations"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("priority_everywhere", sa.Boolean(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("waited_seconds", sa.Float(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("waits_since", sa.Float(), nullable=True))
    op.add_column("reservations", sa.Column("time_zone", sa.String(), nullable=False, server_default="UTC"))
