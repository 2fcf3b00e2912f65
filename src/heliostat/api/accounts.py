"""Endpoints of users, projects, departments, tokens, logins and the audit log."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import BaseModel

from heliostat.api.account_schemas import (
    AuditEntryResponse,
    CallerResponse,
    DepartmentBody,
    DepartmentChangeBody,
    DepartmentResponse,
    ListResponse,
    LoginBody,
    LoginLinkResponse,
    LoginResponse,
    MemberBody,
    NewTokenResponse,
    OwnedWorkResponse,
    PasswordBody,
    ProjectBody,
    ProjectChangeBody,
    ProjectResponse,
    TokenBody,
    TokenResponse,
    UserBody,
    UserChangeBody,
    UserResponse,
)
from heliostat.api.request_bodies import BodyRouter, described
from heliostat.api.request_context import CallerDep, ContextDep, IdPath, client_address
from heliostat.errors import Invalid
from heliostat.services.accounts import audit, owned_work, projects, tokens, users, web_logins

router = BodyRouter(tags=["accounts"])


@router.get("/whoami", summary="Show the caller's account")
def show_caller(caller: CallerDep) -> CallerResponse:
    return CallerResponse.of(caller)


@router.post("/login", summary="Create a token for 12 hours with name and password")
def log_in(body: LoginBody, request: Request, response: Response, context: ContextDep) -> LoginResponse:
    secret, token = tokens.create_login_token(context, body.name, body.password, client_address(request))
    response.headers["Cache-Control"] = "no-store"
    return LoginResponse(token=secret, id=token.id, expires_at=token.expires_at)


@router.post("/login/link", summary="Create a single-use link that logs a browser in as you")
def create_login_link(
    request: Request, response: Response, caller: CallerDep, context: ContextDep
) -> LoginLinkResponse:
    code, validity = web_logins.create_login_code(context, caller)
    response.headers["Cache-Control"] = "no-store"
    address = context.settings.server.public_url or str(request.app.state.facts["url"])
    url = f"{address.rstrip('/')}/login/link?code={code}"
    return LoginLinkResponse(url=url, expires_at=context.now() + validity)


@router.get("/tokens", summary="List your tokens; admins may list those of a user")
def list_tokens(caller: CallerDep, context: ContextDep, user: str | None = None) -> ListResponse[TokenResponse]:
    return ListResponse(items=[TokenResponse.of(token) for token in tokens.list_tokens(context, caller, user)])


@router.post("/tokens", status_code=201, summary="Create a token; its secret is returned only here")
def create_token(body: TokenBody, response: Response, caller: CallerDep, context: ContextDep) -> NewTokenResponse:
    secret, token = tokens.create_token(context, caller, body.name, body.days, body.scope)
    response.headers["Cache-Control"] = "no-store"
    return NewTokenResponse.of_new(secret, token)


@router.delete("/tokens/{token_id}", status_code=204, summary="Revoke a token")
def revoke_token(token_id: IdPath, caller: CallerDep, context: ContextDep) -> None:
    tokens.revoke_token(context, caller, token_id)


@router.get("/users", summary="List the users you may see")
def list_users(caller: CallerDep, context: ContextDep) -> ListResponse[UserResponse]:
    return ListResponse(items=[UserResponse.of(user) for user in users.list_users(context, caller)])


@router.post("/users", status_code=201, summary="Create a user account")
def create_user(body: UserBody, caller: CallerDep, context: ContextDep) -> UserResponse:
    projects = None if body.projects is None else tuple(body.projects)
    new = users.NewUser(body.name, body.role, body.unix_user, body.password, projects)
    return UserResponse.of(users.create_user(context, caller, new))


@router.get("/users/{name}", summary="Show a user account")
def get_user(name: str, caller: CallerDep, context: ContextDep) -> UserResponse:
    return UserResponse.of(users.get_user(context, caller, name))


@router.get("/users/{name}/work", summary="Show the unfinished jobs, services and schedules of a user")
def get_owned_work(name: str, caller: CallerDep, context: ContextDep) -> OwnedWorkResponse:
    return OwnedWorkResponse.model_validate(asdict(owned_work.get_owned_work(context, caller, name)))


@router.patch("/users/{name}", summary="Change role, active flag, Unix user or quota")
def update_user(name: str, body: UserChangeBody, caller: CallerDep, context: ContextDep) -> UserResponse:
    _not_null(body, "role", "active")
    change = users.UserChange(
        role=body.role,
        active=body.active,
        unix_user=body.unix_user,
        clear_unix_user="unix_user" in body.model_fields_set and body.unix_user is None,
        quota=body.quota_change(),
    )
    return UserResponse.of(users.update_user(context, caller, name, change))


@router.put("/users/{name}/password", status_code=204, summary="Set the password of a user")
def set_password(name: str, body: PasswordBody, caller: CallerDep, context: ContextDep) -> None:
    users.set_password(context, caller, name, body.password, body.current)


@router.get("/departments", summary="List departments")
def list_departments(caller: CallerDep, context: ContextDep) -> ListResponse[DepartmentResponse]:
    departments = projects.list_departments(context, caller)
    return ListResponse(items=[DepartmentResponse.of(department) for department in departments])


@router.post("/departments", status_code=201, summary="Create a department")
def create_department(body: DepartmentBody, caller: CallerDep, context: ContextDep) -> DepartmentResponse:
    return DepartmentResponse.of(projects.create_department(context, caller, body.name))


@router.patch("/departments/{name}", summary="Change the share or quota of a department")
def update_department(
    name: str, body: DepartmentChangeBody, caller: CallerDep, context: ContextDep
) -> DepartmentResponse:
    _not_null(body, "share")
    change = projects.ProjectOrDepartmentChange(share=body.share, quota=body.quota_change())
    return DepartmentResponse.of(projects.update_department(context, caller, name, change))


@router.get("/projects", summary="List your projects; admins see all")
def list_projects(caller: CallerDep, context: ContextDep) -> ListResponse[ProjectResponse]:
    return ListResponse(items=[ProjectResponse.of(project) for project in projects.list_projects(context, caller)])


@router.post("/projects", status_code=201, summary="Create a project")
def create_project(body: ProjectBody, caller: CallerDep, context: ContextDep) -> ProjectResponse:
    return ProjectResponse.of(projects.create_project(context, caller, body.name, body.department))


@router.get("/projects/{name}", summary="Show a project and its members")
def get_project(name: str, caller: CallerDep, context: ContextDep) -> ProjectResponse:
    return ProjectResponse.of(projects.get_project(context, caller, name))


@router.patch("/projects/{name}", summary="Change, move or close a project")
def update_project(name: str, body: ProjectChangeBody, caller: CallerDep, context: ContextDep) -> ProjectResponse:
    _not_null(body, "share", "data_class", "department")
    return ProjectResponse.of(*projects.update_project(context, caller, name, body.project_change()))


@router.put("/projects/{name}/members/{user}", summary="Add a member or change the role of a member")
def add_member(name: str, user: str, body: MemberBody, caller: CallerDep, context: ContextDep) -> ProjectResponse:
    return ProjectResponse.of(projects.add_member(context, caller, name, user, body.role))


@router.delete("/projects/{name}/members/{user}", summary="Remove a member")
def remove_member(name: str, user: str, caller: CallerDep, context: ContextDep) -> ProjectResponse:
    return ProjectResponse.of(projects.remove_member(context, caller, name, user))


@router.get("/audit", summary="List audit log entries, newest first")
def list_audit(
    caller: CallerDep,
    context: ContextDep,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str | None, described(pattern="^[0-9]{1,18}$")] = None,
    user: Annotated[str, Query(max_length=64, description="Only actions of this user.")] = "",
    text: Annotated[
        str, Query(max_length=128, description="Only entries with this text in action or target.")
    ] = "",
) -> ListResponse[AuditEntryResponse]:
    entries, next_cursor = audit.list_audit_entries(context, caller, limit, cursor, audit.AuditFilter(user, text))
    return ListResponse(items=[AuditEntryResponse.of(entry) for entry in entries], next_cursor=next_cursor)


def _not_null(body: BaseModel, *fields: str) -> None:
    """Rejects null for these fields; for a limit or the Unix user it removes the value."""
    for field in fields:
        if field in body.model_fields_set and getattr(body, field) is None:
            raise Invalid(f"{field}: must not be null.", "Omit it to keep its value.", fields={field: "is null"})
