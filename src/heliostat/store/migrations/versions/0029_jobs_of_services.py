"""an index of the ended replicas of services"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    where = sa.text("kind = 'service' AND ended_at IS NOT NULL")
    op.create_index("jobs_of_services", "jobs", ["user", "name", "id"], sqlite_where=where)
