"""Admin pages: departments with their shares and quotas."""

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
_BREADCRUMBS = (ADMIN_BREADCRUMB, ("Projects", "/admin/projects"))
_FORM_ERRORS = (BadRequest, Conflict, NotFound)


@dataclass(frozen=True, slots=True)
class NewDepartmentView:
    form: FormState


@dataclass(frozen=True, slots=True)
class DepartmentView:
    department: Department
    projects: tuple[str, ...]
    form: FormState


@router.get("/admin/new-department")
def show_new_department_form(request: AdminDep) -> Response:
    return _new_page(request, FormState())


@router.post("/admin/new-department")
def create_department(request: AdminDep, form: FormDep) -> Response:
    try:
        department = services.create_department(request.context, request.caller, form.get("name"))
    except _FORM_ERRORS as error:
        return _new_page(request, form_with_errors(form, error, {}))
    return redirect(request, f"/admin/departments/{department.name}", f"Department {department.name} created.")


@router.get("/admin/departments/{name}")
def show_department(request: AdminDep, name: NameParam) -> Response:
    department = _get_department(request, name)
    return _page(request, department, FormState(_values(department)))


@router.post("/admin/departments/{name}/set")
def update_department(request: AdminDep, name: NameParam, form: FormDep) -> Response:
    department = _get_department(request, name)
    try:
        reader = FormReader(form)
        change = ProjectOrDepartmentChange(
            share=reader.read_integer("share", 1, MAX_SHARE), quota=read_quota_fields(reader)
        )
        reader.raise_if_invalid()
        services.update_department(request.context, request.caller, name, change)
    except _FORM_ERRORS as error:
        return _page(request, department, form_with_errors(form, error, _values(department)))
    return redirect(request, f"/admin/departments/{name}", "Saved.")


def _get_department(request: AuthenticatedRequest, name: str) -> Department:
    for department in services.list_departments(request.context, request.caller):
        if department.name == name:
            return department
    raise NotFound(f"Department {safe_repr(name)} does not exist.", "See the list of projects.")


def _values(department: Department) -> Mapping[str, str]:
    return {"share": str(department.share)} | quota_form_values(department.quota)


def _new_page(request: AuthenticatedRequest, form: FormState) -> Response:
    page = PageSpec("admin/new_department.html", "New department", breadcrumbs=_BREADCRUMBS, status=form.status)
    return render_page(request, page, NewDepartmentView(form))


def _page(request: AuthenticatedRequest, department: Department, form: FormState) -> Response:
    projects = services.list_projects(request.context, request.caller)
    names = tuple(project.name for project in projects if project.department == department.name)
    page = PageSpec("admin/department.html", department.name, breadcrumbs=_BREADCRUMBS, status=form.status)
    return render_page(request, page, DepartmentView(department, names, form))
