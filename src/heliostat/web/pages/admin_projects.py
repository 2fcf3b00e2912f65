"""Pages of projects: admins create and change them, managers manage the members of their own projects."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.errors import BadRequest, Conflict, Forbidden, NotFound
from heliostat.models import Project, ProjectRole
from heliostat.services.accounts import projects as services
from heliostat.services.accounts.data_classes import MAX_DATA_CLASS
from heliostat.services.accounts.projects import MAX_SHARE, ProjectOrDepartmentChange
from heliostat.web.admin_fields import (
    ADMIN_BREADCRUMB,
    DATA_CLASS_OPTIONS,
    NameParam,
    describe_quota,
    quota_form_values,
    read_quota_fields,
)
from heliostat.web.forms import FormReader, FormState, form_with_errors
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedDep, AuthenticatedRequest, FormDep, SubmittedForm
from heliostat.web.view_models import Confirmation

router = APIRouter()
_PROJECTS = ("Projects", "/admin/projects")
_FORM_ERRORS = (BadRequest, Conflict, NotFound)
_MEMBER_ROLES = (("member", "member"), ("manager", "manager: manages the members"))


@dataclass(frozen=True, slots=True)
class ProjectOrDepartmentRow:
    kind: str  # department, project
    name: str
    share: int
    quota: str
    data_class: int | None = None
    members: int = 0
    managers: str = ""
    closes_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ProjectsView:
    rows: tuple[ProjectOrDepartmentRow, ...]
    is_admin: bool


@dataclass(frozen=True, slots=True)
class NewProjectView:
    form: FormState
    departments: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MemberRow:
    name: str
    is_manager: bool
    may_change: bool


@dataclass(frozen=True, slots=True)
class ProjectView:
    project: Project
    is_admin: bool
    quota: str
    members: tuple[MemberRow, ...]
    roles: tuple[tuple[str, str], ...]
    data_class_options: tuple[tuple[str, str], ...]
    departments: tuple[tuple[str, str], ...]
    time_zone: str
    is_closed: bool
    form: FormState


@router.get("/admin/projects")
def show_projects(request: AuthenticatedDep) -> Response:
    """All projects for admins, their own projects for managers."""
    managed = [
        one for one in services.list_projects(request.context, request.caller) if request.user.may_manage(one.name)
    ]
    if not managed and not request.user.is_admin:
        raise Forbidden("Only admins and project managers can see this page.", "Ask an admin.")
    view = ProjectsView(tuple(_rows(request, managed)), request.user.is_admin)
    return render_page(request, PageSpec("admin/projects.html", "Projects", live_topics=("rules",)), view)


@router.get("/admin/new-project")
def show_new_project_form(request: AdminDep) -> Response:
    return _new_project_page(request, FormState({"department": request.context.settings.auth.default_department}))


@router.post("/admin/new-project")
def create_project(request: AdminDep, form: FormDep) -> Response:
    try:
        project = services.create_project(
            request.context, request.caller, form.get("name"), form.get("department")
        )
    except _FORM_ERRORS as error:
        return _new_project_page(request, form_with_errors(form, error, {}))
    return redirect(
        request, f"/admin/projects/{project.name}", f"Project {project.name} created. Add its members."
    )


@router.get("/admin/projects/{name}")
def show_project(request: AuthenticatedDep, name: NameParam) -> Response:
    project = _get_managed_project(request, name)
    return _project_page(request, project, FormState(_values(request, project)))


@router.post("/admin/projects/{name}/set")
def update_project(request: AdminDep, name: NameParam, form: FormDep) -> Response:
    project = _get_managed_project(request, name)
    try:
        reader = FormReader(form)
        change = ProjectOrDepartmentChange(
            share=reader.read_integer("share", 1, MAX_SHARE),
            data_class=reader.read_integer("data_class", 0, MAX_DATA_CLASS),
            quota=read_quota_fields(reader),
            department=form.get("department") or None,
            closes_at=_read_closing_time(request, reader, form, project),
            reopen=not form.get("closes_at"),
        )
        reader.raise_if_invalid()
        _, note = services.update_project(request.context, request.caller, name, change)
    except _FORM_ERRORS as error:
        return _project_page(request, project, form_with_errors(form, error, _values(request, project)))
    message = f"Saved. {note}" if note else "Saved."
    return redirect(request, f"/admin/projects/{name}", message, "note" if note else "good")


@router.post("/admin/projects/{name}/members")
def add_member(request: AuthenticatedDep, name: NameParam, form: FormDep) -> Response:
    """Add a member, or change the role of a member."""
    project, user = _get_managed_project(request, name), form.get("user")
    try:
        role = ProjectRole.MANAGER if form.get("member_role") == "manager" else ProjectRole.MEMBER
        services.add_member(request.context, request.caller, name, user, role)
    except _FORM_ERRORS as error:
        return _project_page(request, project, form_with_errors(form, error, _values(request, project), "user"))
    return redirect(request, f"/admin/projects/{name}", f"{user} is a {role.value} of {name}.")


@router.post("/admin/projects/{name}/remove")
def remove_member(request: AuthenticatedDep, name: NameParam, form: FormDep) -> Response:
    project, user, back = _get_managed_project(request, name), form.get("user"), f"/admin/projects/{name}"
    if user not in dict(project.members):
        return redirect(request, back, f"{user} is not a member of {name}.", "note")
    if form.get("confirmed") != "yes":
        view = Confirmation(
            question=f"Remove {user} from {name}?",
            consequence="They can no longer submit jobs for it. Their existing jobs continue.",
            action=f"{back}/remove",
            label=f"Remove {user}",
            fields=(("confirmed", "yes"), ("user", user)),
            back=back,
        )
        return render_page(
            request,
            PageSpec("confirmation.html", "Remove", breadcrumbs=(*_breadcrumbs(request), (name, back))),
            view,
        )
    services.remove_member(request.context, request.caller, name, user)
    return redirect(request, back, f"{user} is no longer a member of {name}.")


def _get_managed_project(request: AuthenticatedRequest, name: str) -> Project:
    project = services.get_project(request.context, request.caller, name)
    if not request.user.may_manage(name):
        raise Forbidden(f"Only a manager of {name} or an admin may do this.", "Ask one of them.")
    return project


def _breadcrumbs(request: AuthenticatedRequest) -> tuple[tuple[str, str], ...]:
    return (ADMIN_BREADCRUMB, _PROJECTS) if request.user.is_admin else (("Fair share", "/share"), _PROJECTS)


def _rows(request: AuthenticatedRequest, projects: list[Project]) -> list[ProjectOrDepartmentRow]:
    """Departments followed by their projects; for managers only projects."""
    if not request.user.is_admin:
        return [_project_row(project) for project in projects]
    rows = []
    for one in services.list_departments(request.context, request.caller):
        rows.append(ProjectOrDepartmentRow("department", one.name, one.share, describe_quota(one.quota)))
        rows += [_project_row(project) for project in projects if project.department == one.name]
    return rows


def _project_row(one: Project) -> ProjectOrDepartmentRow:
    managers = ", ".join(name for name, role in one.members if role is ProjectRole.MANAGER)
    quota = describe_quota(one.quota)
    return ProjectOrDepartmentRow(
        "project", one.name, one.share, quota, one.data_class, len(one.members), managers, one.closes_at
    )


def _values(request: AuthenticatedRequest, project: Project) -> Mapping[str, str]:
    own = {
        "share": str(project.share),
        "data_class": str(project.data_class),
        "department": project.department,
        "closes_at": _closing_time_value(request, project),
        "user": "",
        "member_role": "member",
    }
    return own | quota_form_values(project.quota)


def _closing_time_value(request: AuthenticatedRequest, project: Project) -> str:
    """In the time zone of the cluster."""
    if project.closes_at is None:
        return ""
    zone = ZoneInfo(request.context.settings.server.effective_time_zone)
    return f"{project.closes_at.astimezone(zone):%Y-%m-%dT%H:%M}"


def _read_closing_time(
    request: AuthenticatedRequest, reader: FormReader, form: SubmittedForm, project: Project
) -> datetime | None:
    """None: unchanged, or empty. The field shows no seconds."""
    if form.get("closes_at") in ("", _closing_time_value(request, project)):
        return None
    return reader.read_time("closes_at", request.context.settings.server.effective_time_zone)


def _new_project_page(request: AuthenticatedRequest, form: FormState) -> Response:
    view = NewProjectView(form, _department_options(request))
    page = PageSpec(
        "admin/new_project.html", "New project", breadcrumbs=(ADMIN_BREADCRUMB, _PROJECTS), status=form.status
    )
    return render_page(request, page, view)


def _department_options(request: AuthenticatedRequest) -> tuple[tuple[str, str], ...]:
    return tuple((one.name, one.name) for one in services.list_departments(request.context, request.caller))


def _project_page(request: AuthenticatedRequest, project: Project, form: FormState) -> Response:
    is_admin = request.user.is_admin
    members = [(name, role is ProjectRole.MANAGER) for name, role in project.members]
    view = ProjectView(
        project=project,
        is_admin=is_admin,
        quota=describe_quota(project.quota),
        members=tuple(MemberRow(name, manages, is_admin or not manages) for name, manages in members),
        roles=_MEMBER_ROLES,
        data_class_options=DATA_CLASS_OPTIONS,
        departments=_department_options(request),
        time_zone=request.context.settings.server.effective_time_zone,
        is_closed=project.is_closed(request.context.now()),
        form=form,
    )
    page = PageSpec("admin/project.html", project.name, breadcrumbs=_breadcrumbs(request), status=form.status)
    return render_page(request, page, view)
