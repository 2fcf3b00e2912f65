"""Rows that follow one another and differ in nothing but their numbers: written by one statement, however many.

To hand them to the driver one by one takes several times as long as the database needs to write them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, bindparam, insert, literal_column, select

from heliostat.store.prepared import Prepared

T = TypeVar("T")
Row = Mapping[str, Any]
_MORE = "more_rows"


class RunsOf:
    """Adds rows to a table. `counting` are the columns that grow by one from row to row of a run."""

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

    def add(self, conn: Connection, found: Iterable[tuple[Row, int]]) -> None:
        """The first row of each run, and how many it has."""
        alone: list[Row] = []
        for row, count in found:
            if count == 1:
                alone.append(row)
                continue
            values = {f"first_{name}": row[name] for name in self._columns}
            self._add_run.run(conn, values | {_MORE: count - 1})
        if alone:
            self._add_one.run_many(conn, alone)


def first_of(row: Sequence[Any]) -> Any:
    """The number of a row that begins with it."""
    return row[0]


def all_but_first_of(row: Sequence[Any]) -> Any:
    return row[1:]


def runs(things: Iterable[T], number: Callable[[T], int], rest: Callable[[T], object]) -> Iterator[tuple[T, int]]:
    """The first of each run, and how many follow one another with the same rest."""
    first: T | None = None
    like: object = None
    count, following = 0, 0
    for thing in things:
        its_number, its_rest = number(thing), rest(thing)
        if first is not None and its_number == following and its_rest == like:
            count, following = count + 1, following + 1
            continue
        if first is not None:
            yield first, count
        first, like, count, following = thing, its_rest, 1, its_number + 1
    if first is not None:
        yield first, count
