"""workflows, sweeps, and what their jobs hand on"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("part", sa.Text()))
    _workflows()
    op.create_table(
        "job_outputs",
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "job_metrics",
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    _sweeps()


def _workflows() -> None:
    op.create_table(
        "workflows",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["user"], ["users.name"]),
        sa.ForeignKeyConstraint(["project"], ["projects.name"]),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("workflows_by_user", "workflows", ["user", "id"])
    op.create_table(
        "workflow_jobs",
        sa.Column("workflow_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.String(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("values", sa.Text(), nullable=False),
        sa.Column("needs", sa.Text(), nullable=False),
        sa.Column("condition", sa.Text()),
        sa.Column("goes_on", sa.Boolean(), nullable=False),
        sa.Column("is_late", sa.Boolean(), nullable=False),
        sa.Column("outcome", sa.String()),
        sa.Column("is_after_failure", sa.Boolean(), nullable=False),
        sa.Column("earlier", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["workflow_id"], ["workflows.id"]),
        sa.PrimaryKeyConstraint("workflow_id", "key"),
    )
    op.create_index("workflow_jobs_by_job", "workflow_jobs", ["job_id"], unique=True)


def _sweeps() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("array_id", sa.Integer(), nullable=False),
        sa.Column("first_job", sa.Integer(), nullable=False),
        sa.Column("last_job", sa.Integer(), nullable=False),
        sa.Column("table", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["user"], ["users.name"]),
        sa.ForeignKeyConstraint(["project"], ["projects.name"]),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("sweeps_by_user", "sweeps", ["user", "id"])
    op.create_index("sweeps_by_job", "sweeps", ["first_job"], unique=True)
