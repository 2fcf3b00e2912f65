"""Admin pages: overview, quotas, settings and the health check (doctor)."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.config.effective_settings import EffectiveSetting
from heliostat.models import NodeState, Quota, count_cards
from heliostat.services.accounts.projects import list_departments, list_projects
from heliostat.services.accounts.users import list_users
from heliostat.services.cluster.nodes import diagnose_installation
from heliostat.services.cluster.reservations import list_reservations
from heliostat.services.cluster.usage_reports import monthly_usage_report
from heliostat.services.effective_settings import list_effective_settings
from heliostat.web.rendering import PageSpec, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedRequest

router = APIRouter()


@dataclass(frozen=True, slots=True)
class AdminOverviewView:
    users: int
    projects: int
    nodes_up: int
    nodes_unavailable: int  # drained or down
    gpus: float
    gpus_with_problems: int
    reservations: int


@dataclass(frozen=True, slots=True)
class QuotaRow:
    kind: str
    name: str
    path: str
    quota: Quota
    gpu_hours: float  # in this month
    used_fraction: float | None  # of the monthly limit; None: no limit


@dataclass(frozen=True, slots=True)
class QuotasView:
    rows: tuple[QuotaRow, ...]


@dataclass(frozen=True, slots=True)
class SettingsView:
    home_folder: str
    settings: tuple[EffectiveSetting, ...]


@dataclass(frozen=True, slots=True)
class FindingRow:
    level: str
    icon: str
    check: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class DoctorView:
    issues: tuple[FindingRow, ...]  # most severe first
    passed: tuple[FindingRow, ...]
    problem_count: int
    warning_count: int


@router.get("/admin")
def show_overview(request: AdminDep) -> Response:
    context, caller = request.context, request.caller
    nodes = context.node_inventory.nodes()
    devices = [device for node in nodes for device in node.devices]
    up = sum(node.state is NodeState.UP for node in nodes)
    view = AdminOverviewView(
        users=sum(user.active for user in list_users(context, caller)),
        projects=len(list_projects(context, caller)),
        nodes_up=up,
        nodes_unavailable=len(nodes) - up,
        gpus=count_cards(devices),
        gpus_with_problems=sum(not device.is_available for device in devices),
        reservations=len(list_reservations(context, caller)),
    )
    return render_page(request, PageSpec("admin/overview.html", "Admin", live_topics=("nodes", "rules")), view)


@router.get("/admin/quotas")
def show_quotas(request: AdminDep) -> Response:
    rows = [row for row in _quota_rows(request) if row.quota != Quota()]
    return render_page(request, PageSpec("admin/quotas.html", "Quotas"), QuotasView(tuple(rows)))


@router.get("/admin/settings")
def show_settings(request: AdminDep) -> Response:
    settings = list_effective_settings(request.context, request.caller)
    view = SettingsView(str(request.context.settings.home.path), tuple(settings))
    return render_page(request, PageSpec("admin/settings.html", "Settings"), view)


@router.get("/admin/doctor")
def show_doctor(request: AdminDep) -> Response:
    findings = diagnose_installation(request.context, request.caller)
    levels = [entry.level for entry in findings]
    rows = [
        FindingRow(entry.level, _ICONS[entry.level], entry.check, entry.message, entry.hint or "")
        for entry in findings
    ]
    rows.sort(key=lambda row: list(_ICONS).index(row.level))
    issues = tuple(row for row in rows if row.level != "ok")
    view = DoctorView(issues, tuple(rows[len(issues) :]), levels.count("problem"), levels.count("warning"))
    return render_page(request, PageSpec("admin/doctor.html", "Doctor"), view)


_ICONS = {"problem": "failed", "warning": "warning", "ok": "completed"}


def _quota_rows(request: AuthenticatedRequest) -> list[QuotaRow]:
    context, caller = request.context, request.caller
    departments = [("department", entry.name, entry.quota) for entry in list_departments(context, caller)]
    projects = [("project", entry.name, entry.quota) for entry in list_projects(context, caller)]
    users = [("user", entry.name, entry.quota) for entry in list_users(context, caller)]
    hours = {
        (kind, line.name): line.gpu_hours
        for kind in ("department", "project", "user")
        for line in monthly_usage_report(context, caller, None, kind)
    }
    return [
        _quota_row(kind, name, quota, hours.get((kind, name), 0.0))
        for kind, name, quota in departments + projects + users
    ]


def _quota_row(kind: str, name: str, quota: Quota, hours: float) -> QuotaRow:
    limit = quota.gpu_hours_per_month
    used_fraction = None if limit is None else min(1.0, hours / limit) if limit else 1.0
    return QuotaRow(kind, name, f"/admin/{kind}s/{name}", quota, hours, used_fraction)
