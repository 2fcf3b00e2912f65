"""alerts of Prometheus become notifications"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("notification_deliveries", sa.Column("alerts", sa.Text, nullable=False, server_default="[]"))
    op.create_table(
        "firing_alerts",
        sa.Column("fingerprint", sa.String, primary_key=True),
        sa.Column("seen_at", sa.Float, nullable=False),
    )
