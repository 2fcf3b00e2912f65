"""View-models that many pages share: sort links, pagers, confirmations, addresses with changed queries."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from starlette.convertors import Convertor, register_url_convertor

SortDirection = Literal["ascending", "descending", ""]


@dataclass(frozen=True, slots=True)
class PageUrl:
    """A path and its query; `with_` changes some of the query and keeps the rest."""

    path: str
    query: Mapping[str, str]

    def with_query(self, **changes: str | int | None) -> str:
        """None and empty values are left out."""
        merged: dict[str, str | int | None] = {**self.query, **changes}
        given = [(name, str(value)) for name, value in merged.items() if value not in (None, "")]
        return self.path + (f"?{urlencode(given)}" if given else "")


@dataclass(frozen=True, slots=True)
class SortLink:
    href: str  # sorts by this column; once more, the other way round
    direction: SortDirection  # of the present order; empty: sorted by another column


def build_sort_links(address: PageUrl, columns: Iterable[str], by: str, descending: bool) -> dict[str, SortLink]:
    """For `ui.column`; in addresses `-gpus` is descending."""
    found = {}
    for column in columns:
        is_current = column == by
        goes_down = not descending if is_current else column in _LARGEST_FIRST
        direction: SortDirection = ("descending" if descending else "ascending") if is_current else ""
        href = address.with_query(sort=("-" if goes_down else "") + column, page=None)
        found[column] = SortLink(href, direction)
    return found


_LARGEST_FIRST = {"id", "gpus", "ended_at", "created_at", "at", "used"}


def parse_sort(text: str, columns: Iterable[str], default: str = "-id") -> tuple[str, bool]:
    """The column and whether it descends; what is not known sorts as by default."""
    chosen = text if text.removeprefix("-") in set(columns) else default
    return chosen.removeprefix("-"), chosen.startswith("-")


@dataclass(frozen=True, slots=True)
class Pager:
    page: int
    page_count: int
    total: int
    first: int
    last: int
    previous_url: str  # empty: there is none
    next_url: str


def build_pager(address: PageUrl, page: int, size: int, total: int) -> Pager:
    """For `ui.pager`. `page` counts from 1."""
    pages = max(1, -(-total // size))
    first = min(total, (page - 1) * size + 1)
    return Pager(
        page=page,
        page_count=pages,
        total=total,
        first=first,
        last=min(total, page * size),
        previous_url=address.with_query(page=page - 1 if page > 2 else None) if page > 1 else "",
        next_url=address.with_query(page=page + 1) if page < pages else "",
    )


@dataclass(frozen=True, slots=True)
class Confirmation:
    """For `confirmation.html`: a dangerous step asks once more, also without scripts."""

    question: str
    consequence: str
    action: str  # where the form goes; with the field confirmed=yes
    label: str
    fields: tuple[tuple[str, str], ...]
    back: str
    items: tuple[str, ...] = ()


class JobIdConvertor(Convertor[int]):
    """Digits that the database can hold. What is longer is no address of ours, and neither is `/jobs/new`."""

    regex = "[0-9]{1,16}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("job", JobIdConvertor())
JOB_ID_PATH = "{job_id:job}"
ARRAY_ID_PATH = "{array_id:job}"
"""Parts of addresses."""
