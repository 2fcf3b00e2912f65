"""Statements that run hundreds of times a second: built and compiled once, then handed straight to the driver."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.expression import Executable


class Prepared:
    """A statement whose values are plain: no conversion happens on the way in or out."""

    def __init__(self, statement: Executable, column_keys: Sequence[str] | None = None) -> None:
        self._statement = statement
        self._column_keys = column_keys
        self._compiled: dict[str, tuple[str, tuple[str, ...]]] = {}

    def run(self, conn: Connection, values: Mapping[str, Any]) -> None:
        self._execute(conn, values)

    def first(self, conn: Connection, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._execute(conn, values).fetchone()
        return row

    def all(self, conn: Connection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._execute(conn, values).fetchall()
        return rows

    def run_many(self, conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        sql, names = self._for(conn)
        with _told_as_usual(conn, sql):
            conn.connection.cursor().executemany(sql, [tuple(row[name] for name in names) for row in rows])

    def _execute(self, conn: Connection, values: Mapping[str, Any]) -> Any:
        sql, names = self._for(conn)
        cursor: Any = conn.connection.cursor()
        with _told_as_usual(conn, sql):
            cursor.execute(sql, tuple(values[name] for name in names))
        return cursor

    def _for(self, conn: Connection) -> tuple[str, tuple[str, ...]]:
        found = self._compiled.get(conn.dialect.name)
        if found is None:
            compiled: Any = self._statement.compile(  # type: ignore[attr-defined]
                dialect=conn.dialect, column_keys=self._column_keys
            )
            found = self._compiled[conn.dialect.name] = (str(compiled), tuple(compiled.positiontup))
        return found


@contextmanager
def _told_as_usual(conn: Connection, sql: str) -> Iterator[None]:
    """The driver's errors as those of SQLAlchemy, like everywhere else."""
    driver = conn.dialect.loaded_dbapi
    try:
        yield
    except driver.Error as error:
        raise DBAPIError.instance(sql, None, error, driver.Error, dialect=conn.dialect) from error
