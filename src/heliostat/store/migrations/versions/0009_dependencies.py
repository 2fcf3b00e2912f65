"""jobs that wait for other jobs, or for a time"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("after", sa.Text(), nullable=False, server_default="[]"))
    op.add_column("jobs", sa.Column("parents_left", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("begin_at", sa.Float(), nullable=True))
    op.create_table(
        "dependencies",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("parent_id", sa.Integer(), nullable=False),
        sa.Column("rule", sa.String(), nullable=False),
        sa.Column("is_settled", sa.Boolean(), nullable=False, server_default="0"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.ForeignKeyConstraint(["parent_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id", "parent_id", "rule"),
    )
    op.create_index("dependencies_by_parent", "dependencies", ["parent_id", "job_id"])
