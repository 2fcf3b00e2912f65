"""an index that answers whatever a list of finished jobs is filtered and sorted by"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    columns = ["state", "project", "user", "gpus", "ended_at", "name"]
    over = sa.text("ended_at IS NOT NULL")
    op.create_index("jobs_listed", "jobs", columns, sqlite_where=over, postgresql_where=over)
