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
from heliostat.web.admin import ADMIN, CLASSES, Name, quota_values, quota_words, read_quota
from heliostat.web.forms import Filled, Reading, refused
from heliostat.web.rendering import Page, redirect, render
from heliostat.web.views import Confirmation
from heliostat.web.visits import AdminDep, FormDep, Visit, VisitDep

router = APIRouter()
_PROJECTS = ("Projects", "/admin/projects")
_WRONG = (BadRequest, Conflict, NotFound)
_MEMBER_ROLES = (("member", "member"), ("manager", "manager: looks after the members"))


@dataclass(frozen=True, slots=True)
class GroupRow:
    kind: str  # department, project
    name: str
    share: int
    quota: str
    data_class: int | None = None
    members: int = 0
    managers: str = ""


@dataclass(frozen=True, slots=True)
class ProjectsView:
    rows: tuple[GroupRow, ...]
    is_admin: bool


@dataclass(frozen=True, slots=True)
class NewProjectView:
    form: Filled
    departments: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    is_manager: bool
    may_change: bool


@dataclass(frozen=True, slots=True)
class ProjectView:
    project: Project
    is_admin: bool
    quota: str
    members: tuple[Member, ...]
    roles: tuple[tuple[str, str], ...]
    classes: tuple[tuple[str, str], ...]
    form: Filled


@router.get("/admin/projects")
def show_projects(visit: VisitDep) -> Response:
    """All for admins; for managers those they look after."""
    mine = [one for one in services.list_projects(visit.context, visit.caller) if visit.user.may_manage(one.name)]
    if not mine and not visit.user.is_admin:
        raise Forbidden("Only admins and managers of projects see this.", "Ask an admin of this Heliostat.")
    view = ProjectsView(tuple(_rows(visit, mine)), visit.user.is_admin)
    return render(visit, Page("admin/projects.html", "Projects", live=("rules",)), view)


@router.get("/admin/new-project")
def ask_for_project(visit: AdminDep) -> Response:
    return _new_project_page(visit, Filled({"department": visit.context.settings.auth.default_department}))


@router.post("/admin/new-project")
def create_project(visit: AdminDep, form: FormDep) -> Response:
    try:
        made = services.create_project(visit.context, visit.caller, form.get("name"), form.get("department"))
    except _WRONG as error:
        return _new_project_page(visit, refused(form, error, {}))
    return redirect(visit, f"/admin/projects/{made.name}", f"The project {made.name} is there. Add its members.")


@router.get("/admin/projects/{name}")
def show_project(visit: VisitDep, name: Name) -> Response:
    project = _managed(visit, name)
    return _project_page(visit, project, Filled(_values(project)))


@router.post("/admin/projects/{name}/set")
def change_project(visit: AdminDep, name: Name, form: FormDep) -> Response:
    project = _managed(visit, name)
    try:
        reading = Reading(form)
        wish = ProjectOrDepartmentChange(
            share=reading.whole("share", 1, MAX_SHARE),
            data_class=reading.whole("data_class", 0, MAX_DATA_CLASS),
            quota=read_quota(reading),
        )
        reading.check()
        _, note = services.update_project(visit.context, visit.caller, name, wish)
    except _WRONG as error:
        return _project_page(visit, project, refused(form, error, _values(project)))
    said = f"Saved. {note}" if note else "Saved."
    return redirect(visit, f"/admin/projects/{name}", said, "note" if note else "good")


@router.post("/admin/projects/{name}/members")
def add_member(visit: VisitDep, name: Name, form: FormDep) -> Response:
    """A new member, or another role for one who is there."""
    project, user = _managed(visit, name), form.get("user")
    try:
        role = ProjectRole.MANAGER if form.get("member_role") == "manager" else ProjectRole.MEMBER
        services.add_member(visit.context, visit.caller, name, user, role)
    except _WRONG as error:
        return _project_page(visit, project, refused(form, error, _values(project), "user"))
    return redirect(visit, f"/admin/projects/{name}", f"{user} is a {role.value} of {name}.")


@router.post("/admin/projects/{name}/remove")
def remove_member(visit: VisitDep, name: Name, form: FormDep) -> Response:
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
        return render(visit, Page("confirm.html", "Remove", crumbs=(*_crumbs(visit), (name, back))), view)
    services.remove_member(visit.context, visit.caller, name, user)
    return redirect(visit, back, f"{user} is no longer in {name}.")


def _managed(visit: Visit, name: str) -> Project:
    project = services.get_project(visit.context, visit.caller, name)
    if not visit.user.may_manage(name):
        raise Forbidden(f"Only a manager of {name} or an admin may do this.", "Ask one of them.")
    return project


def _crumbs(visit: Visit) -> tuple[tuple[str, str], ...]:
    return (ADMIN, _PROJECTS) if visit.user.is_admin else (("Share", "/share"), _PROJECTS)


def _rows(visit: Visit, found: list[Project]) -> list[GroupRow]:
    """Each department with its projects below; managers see no departments."""
    if not visit.user.is_admin:
        return [_project_row(project) for project in found]
    rows = []
    for one in services.list_departments(visit.context, visit.caller):
        rows.append(GroupRow("department", one.name, one.share, quota_words(one.quota)))
        rows += [_project_row(project) for project in found if project.department == one.name]
    return rows


def _project_row(one: Project) -> GroupRow:
    managers = ", ".join(name for name, role in one.members if role is ProjectRole.MANAGER)
    quota = quota_words(one.quota)
    return GroupRow("project", one.name, one.share, quota, one.data_class, len(one.members), managers)


def _values(project: Project) -> Mapping[str, str]:
    own = {"share": str(project.share), "data_class": str(project.data_class), "user": "", "member_role": "member"}
    return own | quota_values(project.quota)


def _new_project_page(visit: Visit, form: Filled) -> Response:
    departments = services.list_departments(visit.context, visit.caller)
    view = NewProjectView(form, tuple((one.name, one.name) for one in departments))
    page = Page("admin/new-project.html", "New project", crumbs=(ADMIN, _PROJECTS), status=form.status)
    return render(visit, page, view)


def _project_page(visit: Visit, project: Project, form: Filled) -> Response:
    is_admin = visit.user.is_admin
    members = [(name, role is ProjectRole.MANAGER) for name, role in project.members]
    view = ProjectView(
        project=project,
        is_admin=is_admin,
        quota=quota_words(project.quota),
        members=tuple(Member(name, manages, is_admin or not manages) for name, manages in members),
        roles=_MEMBER_ROLES,
        classes=CLASSES,
        form=form,
    )
    page = Page("admin/project.html", project.name, crumbs=_crumbs(visit), status=form.status)
    return render(visit, page, view)
