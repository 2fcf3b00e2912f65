"""View models of several pages: URLs with changed queries, sort links, pagers, confirmations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from starlette.convertors import Convertor, register_url_convertor

SortDirection = Literal["ascending", "descending", ""]


@dataclass(frozen=True, slots=True)
class PageUrl:
    """A path and its query; `with_query` changes some parameters and keeps the others."""

    path: str
    query: Mapping[str, str]

    def with_query(self, **changes: str | int | None) -> str:
        """None and empty values are omitted."""
        merged: dict[str, str | int | None] = {**self.query, **changes}
        given = [(name, str(value)) for name, value in merged.items() if value not in (None, "")]
        return self.path + (f"?{urlencode(given)}" if given else "")


@dataclass(frozen=True, slots=True)
class SortLink:
    href: str  # sorts by this column; for the current column, in the opposite direction
    direction: SortDirection  # current direction; empty: sorted by another column


def build_sort_links(url: PageUrl, columns: Iterable[str], by: str, descending: bool) -> dict[str, SortLink]:
    """For `ui.column`; `-gpus` in a URL means descending."""
    links = {}
    for column in columns:
        is_current = column == by
        next_descending = not descending if is_current else column in _DESCENDING_FIRST
        direction: SortDirection = ("descending" if descending else "ascending") if is_current else ""
        href = url.with_query(sort=("-" if next_descending else "") + column, page=None)
        links[column] = SortLink(href, direction)
    return links


_DESCENDING_FIRST = {"id", "gpus", "ended_at", "created_at", "at", "used"}


def parse_sort(text: str, columns: Iterable[str], default: str = "-id") -> tuple[str, bool]:
    """The column and whether it is descending; an unknown column gives the default."""
    chosen = text if text.removeprefix("-") in set(columns) else default
    return chosen.removeprefix("-"), chosen.startswith("-")


@dataclass(frozen=True, slots=True)
class Pager:
    page: int
    page_count: int
    total: int
    first: int
    last: int
    previous_url: str  # empty: no such page
    next_url: str


def build_pager(url: PageUrl, page: int, size: int, total: int) -> Pager:
    """For `ui.pager`. `page` counts from 1."""
    pages = max(1, -(-total // size))
    first = min(total, (page - 1) * size + 1)
    return Pager(
        page=page,
        page_count=pages,
        total=total,
        first=first,
        last=min(total, page * size),
        previous_url=url.with_query(page=page - 1 if page > 2 else None) if page > 1 else "",
        next_url=url.with_query(page=page + 1) if page < pages else "",
    )


@dataclass(frozen=True, slots=True)
class Confirmation:
    """For `confirmation.html`: a destructive action needs a confirmation, also without JavaScript."""

    question: str
    consequence: str
    action: str  # URL of the form, which sends confirmed=yes
    label: str
    fields: tuple[tuple[str, str], ...]
    back: str
    items: tuple[str, ...] = ()


class JobIdConvertor(Convertor[int]):
    """A number that fits into the database. Longer numbers, and `/jobs/new`, do not match."""

    regex = "[0-9]{1,16}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("job", JobIdConvertor())
JOB_ID_PATH = "{job_id:job}"
ARRAY_ID_PATH = "{array_id:job}"
"""Path segments with a number."""
