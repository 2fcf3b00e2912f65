"""The audit log: who did what to what, from where."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from heliostat.models import AuditEntry
from heliostat.services.accounts.users import AuditFilter, list_audit_entries
from heliostat.web.admin import Text
from heliostat.web.rendering import Page, render
from heliostat.web.views import Address
from heliostat.web.visits import AdminDep

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
    newest: str  # addresses; empty: one is there
    older: str


@router.get("/admin/audit")
def show_audit(
    visit: AdminDep,
    who: Text = "",
    what: Text = "",
    before: Annotated[str | None, Query(max_length=20)] = None,
) -> Response:
    only = AuditFilter(who.strip(), what.strip())
    entries, cursor = list_audit_entries(visit.context, visit.caller, _PAGE_SIZE, before, only)
    here = Address("/admin/audit", {"who": only.user, "what": only.text})
    view = AuditView(
        who=only.user,
        what=only.text,
        rows=tuple(_row(entry) for entry in entries),
        newest=here.with_() if before else "",
        older=here.with_(before=cursor) if cursor else "",
    )
    return render(visit, Page("admin/audit.html", "Audit log"), view)


def _row(entry: AuditEntry) -> AuditRow:
    detail = "; ".join(f"{name}: {_told(value)}" for name, value in entry.detail.items() if value is not None)
    shown = detail if len(detail) <= _LONGEST_DETAIL else detail[:_LONGEST_DETAIL] + " …"
    origin = f"{entry.via}, {entry.address}"
    return AuditRow(entry.id, entry.at, entry.user, origin, entry.action, entry.target, shown)


def _told(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
