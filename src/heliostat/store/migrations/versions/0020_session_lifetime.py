"""what sessions are started with, and whether they may be idle"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("environment", sa.String()))
    op.add_column("sessions", sa.Column("keep_idle", sa.Boolean(), nullable=False, server_default="0"))
