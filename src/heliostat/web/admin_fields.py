"""Shared parts of the admin pages: parameters, quota fields, paginated lists."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

from fastapi import Path, Query

from heliostat.models import Quota
from heliostat.services.accounts.quotas import QuotaChange
from heliostat.web import formatting
from heliostat.web.forms import FormReader
from heliostat.web.view_models import Pager, PageUrl, build_pager

T = TypeVar("T")
NameParam = Annotated[str, Path(max_length=128)]
SearchText = Annotated[str, Query(max_length=128, pattern=r"^[^\x00]*$")]
PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
ADMIN_BREADCRUMB = ("Admin", "/admin")
DATA_CLASS_OPTIONS = (("0", "0 · open"), ("1", "1 · internal"), ("2", "2 · confidential"), ("3", "3 · secret"))
_MAX_GPUS, _MAX_GPU_HOURS = 1_000_000, 1_000_000_000
_PAGE_SIZE = 50


def quota_form_values(quota: Quota) -> dict[str, str]:
    """Values of the form fields; empty: no limit."""
    limits = {name: getattr(quota, name) for name in _LIMITS}
    return {name: "" if limit is None else str(limit) for name, limit in limits.items()}


def read_quota_fields(reader: FormReader) -> QuotaChange:
    return {name: reader.read_integer(name, 0, maximum) for name, maximum in _LIMITS.items()}


_LIMITS = {"running_gpus": _MAX_GPUS, "queued_gpus": _MAX_GPUS, "gpu_hours_per_month": _MAX_GPU_HOURS}


def describe_quota(quota: Quota) -> str:
    """Empty: no limit."""
    parts = []
    if quota.running_gpus is not None:
        parts.append(f"{formatting.format_count(quota.running_gpus, 'running GPU')}")
    if quota.queued_gpus is not None:
        parts.append(f"{formatting.format_count(quota.queued_gpus, 'queued GPU')}")
    if quota.gpu_hours_per_month is not None:
        parts.append(f"{formatting.format_count(quota.gpu_hours_per_month, 'GPU-hour')} per month")
    return ", ".join(parts)


def paginate(items: Sequence[T], url: PageUrl, page: int) -> tuple[Sequence[T], Pager]:
    """The items of one page; a page number past the end gives the last page."""
    page = max(1, min(page, -(-len(items) // _PAGE_SIZE)))
    return items[(page - 1) * _PAGE_SIZE : page * _PAGE_SIZE], build_pager(url, page, _PAGE_SIZE, len(items))
