"""Departments, for admins: their part of the cluster and their limits."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.errors import BadRequest, Conflict, NotFound, safe_repr
from heliostat.models import Department
from heliostat.services.accounts import projects as services
from heliostat.services.accounts.projects import MAX_SHARE, ProjectOrDepartmentChange
from heliostat.web.admin_fields import ADMIN_BREADCRUMB, NameParam, quota_form_values, read_quota_fields
from heliostat.web.forms import FormReader, FormState, form_with_errors
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedRequest, FormDep

router = APIRouter()
_CRUMBS = (ADMIN_BREADCRUMB, ("Projects", "/admin/projects"))
_WRONG = (BadRequest, Conflict, NotFound)


@dataclass(frozen=True, slots=True)
class NewDepartmentView:
    form: FormState


@dataclass(frozen=True, slots=True)
class DepartmentView:
    department: Department
    projects: tuple[str, ...]
    form: FormState


@router.get("/admin/new-department")
def show_new_department_form(visit: AdminDep) -> Response:
    return _new_page(visit, FormState())


@router.post("/admin/new-department")
def create_department(visit: AdminDep, form: FormDep) -> Response:
    try:
        made = services.create_department(visit.context, visit.caller, form.get("name"))
    except _WRONG as error:
        return _new_page(visit, form_with_errors(form, error, {}))
    return redirect(visit, f"/admin/departments/{made.name}", f"The department {made.name} is there.")


@router.get("/admin/departments/{name}")
def show_department(visit: AdminDep, name: NameParam) -> Response:
    department = _found(visit, name)
    return _page(visit, department, FormState(_values(department)))


@router.post("/admin/departments/{name}/set")
def update_department(visit: AdminDep, name: NameParam, form: FormDep) -> Response:
    department = _found(visit, name)
    try:
        reading = FormReader(form)
        wish = ProjectOrDepartmentChange(
            share=reading.read_integer("share", 1, MAX_SHARE), quota=read_quota_fields(reading)
        )
        reading.raise_if_invalid()
        services.update_department(visit.context, visit.caller, name, wish)
    except _WRONG as error:
        return _page(visit, department, form_with_errors(form, error, _values(department)))
    return redirect(visit, f"/admin/departments/{name}", "Saved.")


def _found(visit: AuthenticatedRequest, name: str) -> Department:
    for one in services.list_departments(visit.context, visit.caller):
        if one.name == name:
            return one
    raise NotFound(f"There is no department {safe_repr(name)}.", "The page of projects lists them.")


def _values(department: Department) -> Mapping[str, str]:
    return {"share": str(department.share)} | quota_form_values(department.quota)


def _new_page(visit: AuthenticatedRequest, form: FormState) -> Response:
    page = PageSpec("admin/new_department.html", "New department", breadcrumbs=_CRUMBS, status=form.status)
    return render_page(visit, page, NewDepartmentView(form))


def _page(visit: AuthenticatedRequest, department: Department, form: FormState) -> Response:
    found = services.list_projects(visit.context, visit.caller)
    names = tuple(project.name for project in found if project.department == department.name)
    page = PageSpec("admin/department.html", department.name, breadcrumbs=_CRUMBS, status=form.status)
    return render_page(visit, page, DepartmentView(department, names, form))
