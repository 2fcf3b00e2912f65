"""What jobs have handed on and reported."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import Connection, Table, delete, insert, select

from heliostat.models import JobId
from heliostat.models.workflows import Metric
from heliostat.store.chunks import chunks
from heliostat.store.database import Transaction
from heliostat.store.workflow_tables import job_metrics, job_outputs


def put_outputs(tx: Transaction, job_id: JobId, values: Mapping[str, str]) -> None:
    """In the place of what was known before."""
    _put(tx, job_outputs, job_id, json.dumps(dict(values)) if values else None)


def put_metrics(tx: Transaction, job_id: JobId, metrics: Mapping[str, Metric]) -> None:
    text = json.dumps([asdict(one) for one in metrics.values()]) if metrics else None
    _put(tx, job_metrics, job_id, text)


def outputs_of(conn: Connection, job_ids: Sequence[JobId]) -> dict[JobId, dict[str, str]]:
    return {job_id: json.loads(text) for job_id, text in _found(conn, job_outputs, job_ids)}


def metrics_of(conn: Connection, job_ids: Sequence[JobId]) -> dict[JobId, dict[str, Metric]]:
    return {
        job_id: {one["name"]: Metric(**one) for one in json.loads(text)}
        for job_id, text in _found(conn, job_metrics, job_ids)
    }


def _put(tx: Transaction, table: Table, job_id: JobId, text: str | None) -> None:
    tx.conn.execute(delete(table).where(table.c.job_id == job_id))
    if text is not None:
        tx.conn.execute(insert(table).values(job_id=job_id, content=text))


def _found(conn: Connection, table: Table, job_ids: Sequence[JobId]) -> list[tuple[JobId, str]]:
    found: list[tuple[JobId, str]] = []
    for some in chunks(job_ids):
        rows = conn.execute(select(table).where(table.c.job_id.in_(some)))
        found += [(row.job_id, row.content) for row in rows]
    return found
