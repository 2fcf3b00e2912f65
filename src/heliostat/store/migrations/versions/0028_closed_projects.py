"""from when on a project accepts no new jobs"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("projects", sa.Column("closes_at", sa.Float()))
