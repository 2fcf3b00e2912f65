"""images that people build: their names, and where they were pushed"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "image_names",
        sa.Column("user", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("named_at", sa.Float(), nullable=False),
    )
    op.create_index("image_names_by_digest", "image_names", ["digest"])
    op.create_table(
        "image_pushes",
        sa.Column("job_id", sa.Integer(), primary_key=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("pushed_digest", sa.String()),
    )
    op.create_index("image_pushes_by_digest", "image_pushes", ["digest"])
