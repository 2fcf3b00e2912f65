"""shares, quotas, data classes, reservations, priority classes, gangs and forecasts"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _add("departments", _number("share", "1"))
    _add("projects", _number("share", "1"), _number("data_class", "0"))
    _add(
        "nodes",
        sa.Column("labels", sa.Text(), nullable=False, server_default="{}"),
        _number("data_class", "0"),
        _number("min_data_class", "0"),
        _flag("splits_devices"),
    )
    _add(
        "attempts",
        sa.Column("places", sa.Text(), nullable=False, server_default="[]"),
        sa.Column("gpu_type", sa.String(), nullable=True),
    )
    op.create_index("attempts_by_end", "attempts", ["ended_at"])
    _add(
        "jobs",
        sa.Column("gpu_memory_mib", sa.Integer(), nullable=True),
        sa.Column("placement", sa.Text(), nullable=False, server_default="{}"),
        sa.Column("places", sa.Text(), nullable=False, server_default="[]"),
        sa.Column("priority_class", sa.String(), nullable=False, server_default="normal"),
        _flag("preemptible"),
        _number("preemptions", "0"),
        _flag("overtime"),
        sa.Column("checkpointed_at", sa.Float(), nullable=True),
    )
    with op.batch_alter_table("jobs") as batch:
        batch.alter_column("gpus", type_=sa.Float(), existing_type=sa.Integer(), existing_nullable=False)
    _create_tables()


def _create_tables() -> None:
    op.create_table(
        "quotas",
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("running_gpus", sa.Integer(), nullable=True),
        sa.Column("queued_gpus", sa.Integer(), nullable=True),
        sa.Column("gpu_hours_per_month", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("scope", "name"),
    )
    op.create_table(
        "reservations",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=True),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("gpus_per_node", sa.Integer(), nullable=True),
        sa.Column("starts_at", sa.Float(), nullable=False),
        sa.Column("ends_at", sa.Float(), nullable=False),
        sa.Column("weeks", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["project"], ["projects.name"]),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "forecasts",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.Column("earliest_at", sa.Float(), nullable=False),
        sa.Column("latest_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("forecasts_by_start", "forecasts", ["started_at"])


def _add(table: str, *columns: "sa.Column[object]") -> None:
    for column in columns:
        op.add_column(table, column)


def _number(name: str, default: str) -> "sa.Column[object]":
    return sa.Column(name, sa.Integer(), nullable=False, server_default=default)


def _flag(name: str) -> "sa.Column[object]":
    return sa.Column(name, sa.Boolean(), nullable=False, server_default="0")
