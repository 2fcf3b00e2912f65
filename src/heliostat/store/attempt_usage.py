"""What attempts have used in all, as engines that keep accounts say."""

from collections.abc import Mapping

from sqlalchemy import Connection, select
from sqlalchemy.dialects.sqlite import insert

from heliostat.models import AttemptId, AttemptUsage, JobId
from heliostat.store import schema
from heliostat.store.database import Transaction

_table = schema.attempt_usage
_VALUES = ("elapsed_seconds", "cpu_seconds", "memory_mib", "gpu_seconds", "out_of_memory")


def add_usage(tx: Transaction, used: Mapping[AttemptId, AttemptUsage]) -> None:
    """Said again, the newest counts."""
    if not used:
        return
    statement = insert(_table)
    newest = {name: statement.excluded[name] for name in _VALUES}
    again = statement.on_conflict_do_update(index_elements=["job_id", "number"], set_=newest)
    tx.conn.execute(again, [usage_row(attempt_id, usage) for attempt_id, usage in used.items()])


def usage_row(attempt_id: AttemptId, usage: AttemptUsage) -> dict[str, object]:
    job_id, _, number = attempt_id.partition(".")
    values = {name: getattr(usage, name) for name in _VALUES}
    return {"job_id": int(job_id), "number": int(number), **values}


def usage_of(conn: Connection, job_id: JobId) -> list[AttemptUsage]:
    """Of each attempt of which it is known, in their order."""
    columns = [_table.c[name] for name in _VALUES]
    query = select(*columns).where(_table.c.job_id == job_id).order_by(_table.c.number)
    return [AttemptUsage(**row._asdict()) for row in conn.execute(query)]
