"""The way to everything an admin sets, and what can only be read: quotas, settings, what the doctor finds."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.config.effective_settings import EffectiveSetting
from heliostat.models import NodeState, Quota
from heliostat.services.accounts.projects import list_departments, list_projects
from heliostat.services.accounts.users import list_users
from heliostat.services.cluster.nodes import diagnose_installation
from heliostat.services.cluster.reservations import list_reservations
from heliostat.services.cluster.usage_reports import monthly_usage_report
from heliostat.services.settings import list_effective_settings
from heliostat.web.rendering import PageSpec, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedRequest

router = APIRouter()


@dataclass(frozen=True, slots=True)
class AdminOverviewView:
    users: int
    projects: int
    nodes_up: int
    nodes_unavailable: int  # drained or down
    gpus: int
    gpus_with_problems: int
    reservations: int


@dataclass(frozen=True, slots=True)
class QuotaRow:
    kind: str
    name: str
    path: str
    quota: Quota
    gpu_hours: float  # GPU-hours in this month
    used_fraction: float | None  # of those allowed


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
    issues: tuple[FindingRow, ...]  # the worst first
    passed: tuple[FindingRow, ...]
    problem_count: int
    warning_count: int


@router.get("/admin")
def show_overview(visit: AdminDep) -> Response:
    context, caller = visit.context, visit.caller
    nodes = context.node_inventory.nodes()
    devices = [device for node in nodes for device in node.devices]
    up = sum(node.state is NodeState.UP for node in nodes)
    view = AdminOverviewView(
        users=sum(user.active for user in list_users(context, caller)),
        projects=len(list_projects(context, caller)),
        nodes_up=up,
        nodes_unavailable=len(nodes) - up,
        gpus=len(devices),
        gpus_with_problems=sum(not device.is_available for device in devices),
        reservations=len(list_reservations(context, caller)),
    )
    return render_page(visit, PageSpec("admin/overview.html", "Admin", live_topics=("nodes", "rules")), view)


@router.get("/admin/quotas")
def show_quotas(visit: AdminDep) -> Response:
    rows = [row for row in _limited(visit) if row.quota != Quota()]
    return render_page(visit, PageSpec("admin/quotas.html", "Quotas"), QuotasView(tuple(rows)))


@router.get("/admin/settings")
def show_settings(visit: AdminDep) -> Response:
    settings = list_effective_settings(visit.context, visit.caller)
    view = SettingsView(str(visit.context.settings.home.path), tuple(settings))
    return render_page(visit, PageSpec("admin/settings.html", "Settings"), view)


@router.get("/admin/doctor")
def show_doctor(visit: AdminDep) -> Response:
    found = diagnose_installation(visit.context, visit.caller)
    levels = [one.level for one in found]
    rows = [FindingRow(one.level, _ICONS[one.level], one.check, one.message, one.hint or "") for one in found]
    rows.sort(key=lambda row: list(_ICONS).index(row.level))
    troubles = tuple(row for row in rows if row.level != "ok")
    view = DoctorView(troubles, tuple(rows[len(troubles) :]), levels.count("problem"), levels.count("warning"))
    return render_page(visit, PageSpec("admin/doctor.html", "Doctor"), view)


_ICONS = {"problem": "failed", "warning": "warning", "ok": "completed"}


def _limited(visit: AuthenticatedRequest) -> list[QuotaRow]:
    context, caller = visit.context, visit.caller
    departments = [("department", one.name, one.quota) for one in list_departments(context, caller)]
    projects = [("project", one.name, one.quota) for one in list_projects(context, caller)]
    users = [("user", one.name, one.quota) for one in list_users(context, caller)]
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
    most = quota.gpu_hours_per_month
    part = None if most is None else min(1.0, hours / most) if most else 1.0
    return QuotaRow(kind, name, f"/admin/{kind}s/{name}", quota, hours, part)
