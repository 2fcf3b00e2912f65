"""Admin page: audit log."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from heliostat.models import AuditEntry
from heliostat.services.accounts.audit import AuditFilter, list_audit_entries
from heliostat.web.admin_fields import SearchText
from heliostat.web.rendering import PageSpec, render_page
from heliostat.web.request_context import AdminDep
from heliostat.web.view_models import PageUrl

router = APIRouter()
_PAGE_SIZE = 50
_MAX_DETAIL_LENGTH = 600


@dataclass(frozen=True, slots=True)
class AuditRow:
    id: int
    at: datetime
    user: str
    origin: str
    action: str
    target: str
    detail: str


@dataclass(frozen=True, slots=True)
class AuditView:
    who: str
    what: str
    rows: tuple[AuditRow, ...]
    newest_url: str  # empty: the newest entries are shown
    older_url: str


@router.get("/admin/audit")
def show_audit(
    request: AdminDep,
    who: SearchText = "",
    what: SearchText = "",
    before: Annotated[str | None, Query(max_length=20)] = None,
) -> Response:
    audit_filter = AuditFilter(who.strip(), what.strip())
    entries, cursor = list_audit_entries(request.context, request.caller, _PAGE_SIZE, before, audit_filter)
    url = PageUrl("/admin/audit", {"who": audit_filter.user, "what": audit_filter.text})
    view = AuditView(
        who=audit_filter.user,
        what=audit_filter.text,
        rows=tuple(_row(entry) for entry in entries),
        newest_url=url.with_query() if before else "",
        older_url=url.with_query(before=cursor) if cursor else "",
    )
    return render_page(request, PageSpec("admin/audit.html", "Audit log"), view)


def _row(entry: AuditEntry) -> AuditRow:
    detail = "; ".join(
        f"{name}: {_format_value(value)}" for name, value in entry.detail.items() if value is not None
    )
    shown = detail if len(detail) <= _MAX_DETAIL_LENGTH else detail[:_MAX_DETAIL_LENGTH] + " …"
    origin = f"{entry.via}, {entry.address}"
    return AuditRow(entry.id, entry.at, entry.user, origin, entry.action, entry.target, shown)


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
