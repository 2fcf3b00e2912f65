"""Statements that run hundreds of times a second: built and compiled once, then handed straight to the driver."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult
from sqlalchemy.sql.expression import Executable


class Prepared:
    """A statement whose values are plain: no type conversion happens on the way in."""

    def __init__(self, statement: Executable, column_keys: Sequence[str] | None = None) -> None:
        self._statement = statement
        self._column_keys = column_keys
        self._compiled: dict[str, tuple[str, tuple[str, ...]]] = {}

    def run(self, conn: Connection, values: Mapping[str, Any]) -> CursorResult[Any]:
        sql, names = self._for(conn)
        return conn.exec_driver_sql(sql, tuple(values[name] for name in names))

    def run_many(self, conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        sql, names = self._for(conn)
        conn.exec_driver_sql(sql, [tuple(row[name] for name in names) for row in rows])

    def _for(self, conn: Connection) -> tuple[str, tuple[str, ...]]:
        found = self._compiled.get(conn.dialect.name)
        if found is None:
            compiled: Any = self._statement.compile(  # type: ignore[attr-defined]
                dialect=conn.dialect, column_keys=self._column_keys
            )
            found = self._compiled[conn.dialect.name] = (str(compiled), tuple(compiled.positiontup))
        return found
