"""the software of jobs, built once"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "environments",
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("python", sa.String()),
        sa.Column("platform", sa.String(), nullable=False),
        sa.Column("owner", sa.String()),
        sa.Column("made_by", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("build_job", sa.Integer(), nullable=False),
        sa.Column("lock", sa.Text()),
        sa.Column("size_bytes", sa.Integer()),
    )
    op.create_table(
        "environment_uses",
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("user", sa.String(), primary_key=True),
        sa.Column("used_at", sa.Float(), nullable=False),
    )
    op.add_column("jobs", sa.Column("environment", sa.String()))
    known = sa.text("environment IS NOT NULL")
    op.create_index("jobs_by_environment", "jobs", ["environment"], sqlite_where=known, postgresql_where=known)
