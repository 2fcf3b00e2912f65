"""Statements that run hundreds of times a second: built and compiled once, then handed straight to the driver."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, TextClause, bindparam, insert, literal_column, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.expression import Executable

from heliostat.store.runs import runs

_MORE = "more_rows"
_KEYS = tuple(f"key{number}" for number in range(16))


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
        if len(rows) == 1:
            self._execute(conn, rows[0])
            return
        sql, names = self._for(conn)
        try:
            driver_of(conn).executemany(sql, [[row[name] for name in names] for row in rows])
        except conn.dialect.loaded_dbapi.Error as error:
            raise told_as_usual(conn, sql, error) from error

    def _execute(self, conn: Connection, values: Mapping[str, Any]) -> Any:
        sql, names = self._for(conn)
        try:
            return driver_of(conn).execute(sql, [values[name] for name in names])
        except conn.dialect.loaded_dbapi.Error as error:
            raise told_as_usual(conn, sql, error) from error

    def _for(self, conn: Connection) -> tuple[str, tuple[str, ...]]:
        found = self._compiled.get(conn.dialect.name)
        if found is None:
            compiled: Any = self._statement.compile(  # type: ignore[attr-defined]
                dialect=conn.dialect, column_keys=self._column_keys
            )
            found = self._compiled[conn.dialect.name] = (str(compiled), tuple(compiled.positiontup))
        return found


class PreparedForMany:
    """The columns of all rows with one of these keys, however many: a few statements, each for several keys."""

    def __init__(
        self, key: ColumnElement[int], *columns: ColumnElement[Any], where: TextClause | None = None
    ) -> None:
        query = select(*columns) if where is None else select(*columns).where(where)
        self._some = Prepared(query.where(key.in_([bindparam(name) for name in _KEYS])))
        self._between = Prepared(query.where(key.between(bindparam("first"), bindparam("last"))))

    def all_of(self, conn: Connection, keys: Iterable[int]) -> list[tuple[Any, ...]]:
        """In no order; keys that do not exist are left out."""
        rows: list[tuple[Any, ...]] = []
        scattered: list[int] = []
        for first, count in runs(sorted(set(keys)), int, lambda key: None):
            if count < len(_KEYS):
                scattered += range(first, first + count)
            else:
                rows += self._between.all(conn, {"first": first, "last": first + count - 1})
        for start in range(0, len(scattered), len(_KEYS)):
            part = scattered[start : start + len(_KEYS)]
            part += part[-1:] * (len(_KEYS) - len(part))  # who is named twice is found once
            rows += self._some.all(conn, dict(zip(_KEYS, part, strict=True)))
        return rows


class PreparedRuns:
    """Adds rows to a table. `counting` are the columns that grow by one from row to row of a run: however many it
    has, the database counts by itself. To hand them to the driver one by one takes several times as long."""

    def __init__(
        self, table: Table, *counting: str, columns: Sequence[str] | None = None, unless_there: bool = False
    ) -> None:
        self._columns = tuple(columns or table.c.keys())
        add = insert(table).prefix_with("OR IGNORE") if unless_there else insert(table)
        self._add_one = Prepared(add, self._columns)
        steps = select(literal_column("0").label("step")).cte("steps", recursive=True)
        steps = steps.union_all(select(steps.c.step + literal_column("1")).where(steps.c.step < bindparam(_MORE)))
        first = {name: bindparam(f"first_{name}", type_=table.c[name].type) for name in self._columns}
        row = [value + steps.c.step if name in counting else value for name, value in first.items()]
        self._add_run = Prepared(add.from_select(list(self._columns), select(*row)))

    def add(self, conn: Connection, found: Iterable[tuple[Mapping[str, Any], int]]) -> None:
        """The first row of each run, and how many it has."""
        alone: list[Mapping[str, Any]] = []
        for row, count in found:
            if count == 1:
                alone.append(row)
                continue
            values = {f"first_{name}": row[name] for name in self._columns}
            self._add_run.run(conn, values | {_MORE: count - 1})
        if alone:
            self._add_one.run_many(conn, alone)


def driver_of(conn: Connection) -> Any:
    """The driver's own connection."""
    return conn.connection.dbapi_connection


def told_as_usual(conn: Connection, sql: str, error: Exception) -> Exception:
    """An error of the driver as that of SQLAlchemy, like everywhere else."""
    driver = conn.dialect.loaded_dbapi
    return DBAPIError.instance(sql, None, error, driver.Error, dialect=conn.dialect)
