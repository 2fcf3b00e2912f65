"""what is kept so that jobs can be repeated"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "records",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "job_records",
        sa.Column("job_id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("attempt", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["record_id"], ["records.id"]),
        sa.PrimaryKeyConstraint("job_id", "attempt"),
    )
    op.create_table(
        "reruns",
        sa.Column("job_id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("of_job_id", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("reruns_by_job", "reruns", ["of_job_id", "job_id"])
