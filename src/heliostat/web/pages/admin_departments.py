"""Departments, for admins: their part of the cluster and their limits."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.errors import BadRequest, Conflict, NotFound, safe_repr
from heliostat.models import Department
from heliostat.services.accounts import projects as services
from heliostat.services.accounts.projects import MAX_SHARE, ProjectOrDepartmentChange
from heliostat.web.admin import ADMIN, Name, quota_values, read_quota
from heliostat.web.forms import Filled, Reading, refused
from heliostat.web.rendering import Page, redirect, render
from heliostat.web.visits import AdminDep, FormDep, Visit

router = APIRouter()
_CRUMBS = (ADMIN, ("Projects", "/admin/projects"))
_WRONG = (BadRequest, Conflict, NotFound)


@dataclass(frozen=True, slots=True)
class NewDepartmentView:
    form: Filled


@dataclass(frozen=True, slots=True)
class DepartmentView:
    department: Department
    projects: tuple[str, ...]
    form: Filled


@router.get("/admin/new-department")
def ask_for_department(visit: AdminDep) -> Response:
    return _new_page(visit, Filled())


@router.post("/admin/new-department")
def create_department(visit: AdminDep, form: FormDep) -> Response:
    try:
        made = services.create_department(visit.context, visit.caller, form.get("name"))
    except _WRONG as error:
        return _new_page(visit, refused(form, error, {}))
    return redirect(visit, f"/admin/departments/{made.name}", f"The department {made.name} is there.")


@router.get("/admin/departments/{name}")
def show_department(visit: AdminDep, name: Name) -> Response:
    department = _found(visit, name)
    return _page(visit, department, Filled(_values(department)))


@router.post("/admin/departments/{name}/set")
def change_department(visit: AdminDep, name: Name, form: FormDep) -> Response:
    department = _found(visit, name)
    try:
        reading = Reading(form)
        wish = ProjectOrDepartmentChange(share=reading.whole("share", 1, MAX_SHARE), quota=read_quota(reading))
        reading.check()
        services.update_department(visit.context, visit.caller, name, wish)
    except _WRONG as error:
        return _page(visit, department, refused(form, error, _values(department)))
    return redirect(visit, f"/admin/departments/{name}", "Saved.")


def _found(visit: Visit, name: str) -> Department:
    for one in services.list_departments(visit.context, visit.caller):
        if one.name == name:
            return one
    raise NotFound(f"There is no department {safe_repr(name)}.", "The page of projects lists them.")


def _values(department: Department) -> Mapping[str, str]:
    return {"share": str(department.share)} | quota_values(department.quota)


def _new_page(visit: Visit, form: Filled) -> Response:
    page = Page("admin/new-department.html", "New department", crumbs=_CRUMBS, status=form.status)
    return render(visit, page, NewDepartmentView(form))


def _page(visit: Visit, department: Department, form: Filled) -> Response:
    found = services.list_projects(visit.context, visit.caller)
    names = tuple(project.name for project in found if project.department == department.name)
    page = Page("admin/department.html", department.name, crumbs=_CRUMBS, status=form.status)
    return render(visit, page, DepartmentView(department, names, form))
