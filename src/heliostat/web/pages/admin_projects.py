"""Departments and projects: admins set them up; managers look after the members of theirs."""

from collections.abc import Mapping
from dataclasses import dataclass

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
from heliostat.web.request_context import AdminDep, AuthenticatedDep, AuthenticatedRequest, FormDep
from heliostat.web.view_models import Confirmation

router = APIRouter()
_PROJECTS = ("Projects", "/admin/projects")
_WRONG = (BadRequest, Conflict, NotFound)
_MEMBER_ROLES = (("member", "member"), ("manager", "manager: looks after the members"))


@dataclass(frozen=True, slots=True)
class ProjectOrDepartmentRow:
    kind: str  # department, project
    name: str
    share: int
    quota: str
    data_class: int | None = None
    members: int = 0
    managers: str = ""


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
    form: FormState


@router.get("/admin/projects")
def show_projects(visit: AuthenticatedDep) -> Response:
    """All for admins; for managers those they look after."""
    mine = [one for one in services.list_projects(visit.context, visit.caller) if visit.user.may_manage(one.name)]
    if not mine and not visit.user.is_admin:
        raise Forbidden("Only admins and managers of projects see this.", "Ask an admin of this Heliostat.")
    view = ProjectsView(tuple(_rows(visit, mine)), visit.user.is_admin)
    return render_page(visit, PageSpec("admin/projects.html", "Projects", live_topics=("rules",)), view)


@router.get("/admin/new-project")
def show_new_project_form(visit: AdminDep) -> Response:
    return _new_project_page(visit, FormState({"department": visit.context.settings.auth.default_department}))


@router.post("/admin/new-project")
def create_project(visit: AdminDep, form: FormDep) -> Response:
    try:
        made = services.create_project(visit.context, visit.caller, form.get("name"), form.get("department"))
    except _WRONG as error:
        return _new_project_page(visit, form_with_errors(form, error, {}))
    return redirect(visit, f"/admin/projects/{made.name}", f"The project {made.name} is there. Add its members.")


@router.get("/admin/projects/{name}")
def show_project(visit: AuthenticatedDep, name: NameParam) -> Response:
    project = _managed(visit, name)
    return _project_page(visit, project, FormState(_values(project)))


@router.post("/admin/projects/{name}/set")
def update_project(visit: AdminDep, name: NameParam, form: FormDep) -> Response:
    project = _managed(visit, name)
    try:
        reading = FormReader(form)
        wish = ProjectOrDepartmentChange(
            share=reading.read_integer("share", 1, MAX_SHARE),
            data_class=reading.read_integer("data_class", 0, MAX_DATA_CLASS),
            quota=read_quota_fields(reading),
        )
        reading.raise_if_invalid()
        _, note = services.update_project(visit.context, visit.caller, name, wish)
    except _WRONG as error:
        return _project_page(visit, project, form_with_errors(form, error, _values(project)))
    said = f"Saved. {note}" if note else "Saved."
    return redirect(visit, f"/admin/projects/{name}", said, "note" if note else "good")


@router.post("/admin/projects/{name}/members")
def add_member(visit: AuthenticatedDep, name: NameParam, form: FormDep) -> Response:
    """A new member, or another role for one who is there."""
    project, user = _managed(visit, name), form.get("user")
    try:
        role = ProjectRole.MANAGER if form.get("member_role") == "manager" else ProjectRole.MEMBER
        services.add_member(visit.context, visit.caller, name, user, role)
    except _WRONG as error:
        return _project_page(visit, project, form_with_errors(form, error, _values(project), "user"))
    return redirect(visit, f"/admin/projects/{name}", f"{user} is a {role.value} of {name}.")


@router.post("/admin/projects/{name}/remove")
def remove_member(visit: AuthenticatedDep, name: NameParam, form: FormDep) -> Response:
    project, user, back = _managed(visit, name), form.get("user"), f"/admin/projects/{name}"
    if user not in dict(project.members):
        return redirect(visit, back, "They are not a member.", "note")
    if form.get("confirmed") != "yes":
        view = Confirmation(
            question=f"Remove {user} from {name}?",
            consequence="They can no longer submit jobs for it. Jobs that are there go on.",
            action=f"{back}/remove",
            label=f"Remove {user}",
            fields=(("confirmed", "yes"), ("user", user)),
            back=back,
        )
        return render_page(
            visit, PageSpec("confirmation.html", "Remove", breadcrumbs=(*_crumbs(visit), (name, back))), view
        )
    services.remove_member(visit.context, visit.caller, name, user)
    return redirect(visit, back, f"{user} is no longer in {name}.")


def _managed(visit: AuthenticatedRequest, name: str) -> Project:
    project = services.get_project(visit.context, visit.caller, name)
    if not visit.user.may_manage(name):
        raise Forbidden(f"Only a manager of {name} or an admin may do this.", "Ask one of them.")
    return project


def _crumbs(visit: AuthenticatedRequest) -> tuple[tuple[str, str], ...]:
    return (ADMIN_BREADCRUMB, _PROJECTS) if visit.user.is_admin else (("Share", "/share"), _PROJECTS)


def _rows(visit: AuthenticatedRequest, found: list[Project]) -> list[ProjectOrDepartmentRow]:
    """Each department with its projects below; managers see no departments."""
    if not visit.user.is_admin:
        return [_project_row(project) for project in found]
    rows = []
    for one in services.list_departments(visit.context, visit.caller):
        rows.append(ProjectOrDepartmentRow("department", one.name, one.share, describe_quota(one.quota)))
        rows += [_project_row(project) for project in found if project.department == one.name]
    return rows


def _project_row(one: Project) -> ProjectOrDepartmentRow:
    managers = ", ".join(name for name, role in one.members if role is ProjectRole.MANAGER)
    quota = describe_quota(one.quota)
    return ProjectOrDepartmentRow(
        "project", one.name, one.share, quota, one.data_class, len(one.members), managers
    )


def _values(project: Project) -> Mapping[str, str]:
    own = {"share": str(project.share), "data_class": str(project.data_class), "user": "", "member_role": "member"}
    return own | quota_form_values(project.quota)


def _new_project_page(visit: AuthenticatedRequest, form: FormState) -> Response:
    departments = services.list_departments(visit.context, visit.caller)
    view = NewProjectView(form, tuple((one.name, one.name) for one in departments))
    page = PageSpec(
        "admin/new_project.html", "New project", breadcrumbs=(ADMIN_BREADCRUMB, _PROJECTS), status=form.status
    )
    return render_page(visit, page, view)


def _project_page(visit: AuthenticatedRequest, project: Project, form: FormState) -> Response:
    is_admin = visit.user.is_admin
    members = [(name, role is ProjectRole.MANAGER) for name, role in project.members]
    view = ProjectView(
        project=project,
        is_admin=is_admin,
        quota=describe_quota(project.quota),
        members=tuple(MemberRow(name, manages, is_admin or not manages) for name, manages in members),
        roles=_MEMBER_ROLES,
        data_class_options=DATA_CLASS_OPTIONS,
        form=form,
    )
    page = PageSpec("admin/project.html", project.name, breadcrumbs=_crumbs(visit), status=form.status)
    return render_page(visit, page, view)
