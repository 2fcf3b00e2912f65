"""services, their replicas, and who may use them through the proxy"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "services",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False, unique=True),
        sa.Column("user", sa.String(), sa.ForeignKey("users.name"), nullable=False),
        sa.Column("project", sa.String(), sa.ForeignKey("projects.name"), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.Column("visibility", sa.String(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("check", sa.Text(), nullable=False),
        sa.Column("surge", sa.Integer(), nullable=False),
        sa.Column("drain_seconds", sa.Float(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("failed_at", sa.Float()),
        sa.Column("problem", sa.Text()),
        sa.Column("retry_at", sa.Float()),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "service_replicas",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
        sa.Column("service_id", sa.Integer(), sa.ForeignKey("services.id"), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("health", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("healthy_at", sa.Float()),
        sa.Column("problem", sa.Text()),
        sa.Column("draining_at", sa.Float()),
        sa.Column("is_over", sa.Boolean(), nullable=False),
    )
    op.create_index("service_replicas_by_service", "service_replicas", ["service_id", "job_id"])
    op.create_index(
        "service_replicas_live",
        "service_replicas",
        ["service_id"],
        sqlite_where=sa.text("is_over = 0"),
        postgresql_where=sa.text("is_over = false"),
    )
    op.add_column("proxy_grants", sa.Column("service", sa.String()))
