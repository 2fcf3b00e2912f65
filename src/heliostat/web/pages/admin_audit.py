"""The audit log: who did what to what, from where."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from heliostat.models import AuditEntry
from heliostat.services.accounts.users import AuditFilter, list_audit_entries
from heliostat.web.admin_fields import SearchText
from heliostat.web.rendering import PageSpec, render_page
from heliostat.web.request_context import AdminDep
from heliostat.web.view_models import PageUrl

router = APIRouter()
_PAGE_SIZE = 50
_LONGEST_DETAIL = 600


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
    newest_url: str  # addresses; empty: one is there
    older_url: str


@router.get("/admin/audit")
def show_audit(
    visit: AdminDep,
    who: SearchText = "",
    what: SearchText = "",
    before: Annotated[str | None, Query(max_length=20)] = None,
) -> Response:
    only = AuditFilter(who.strip(), what.strip())
    entries, cursor = list_audit_entries(visit.context, visit.caller, _PAGE_SIZE, before, only)
    here = PageUrl("/admin/audit", {"who": only.user, "what": only.text})
    view = AuditView(
        who=only.user,
        what=only.text,
        rows=tuple(_row(entry) for entry in entries),
        newest_url=here.with_query() if before else "",
        older_url=here.with_query(before=cursor) if cursor else "",
    )
    return render_page(visit, PageSpec("admin/audit.html", "Audit log"), view)


def _row(entry: AuditEntry) -> AuditRow:
    detail = "; ".join(f"{name}: {_told(value)}" for name, value in entry.detail.items() if value is not None)
    shown = detail if len(detail) <= _LONGEST_DETAIL else detail[:_LONGEST_DETAIL] + " …"
    origin = f"{entry.via}, {entry.address}"
    return AuditRow(entry.id, entry.at, entry.user, origin, entry.action, entry.target, shown)


def _told(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
