"""addresses of browsers that have a cookie of the proxy"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("proxy_grants", sa.Column("address", sa.String()))
