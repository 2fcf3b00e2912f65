"""Admin pages: user accounts, roles, passwords, quotas and tokens."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.errors import BadRequest, Conflict, NotFound
from heliostat.models import Role, Token, User
from heliostat.services.accounts import tokens, users
from heliostat.services.accounts.owned_work import get_owned_work
from heliostat.services.accounts.projects import list_projects
from heliostat.services.accounts.users import NewUser, UserChange
from heliostat.web.admin_fields import (
    ADMIN_BREADCRUMB,
    NameParam,
    PageNumber,
    SearchText,
    describe_quota,
    paginate,
    quota_form_values,
    read_quota_fields,
)
from heliostat.web.formatting import format_count
from heliostat.web.forms import FormReader, FormState, form_with_errors
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedRequest, FormDep
from heliostat.web.view_models import Confirmation, Pager, PageUrl

router = APIRouter()
ROLE_OPTIONS = (("user", "user"), ("admin", "admin: all permissions"))
_USERS = ("Users", "/admin/users")
_FORM_ERRORS = (BadRequest, Conflict, NotFound)


@dataclass(frozen=True, slots=True)
class UserRow:
    user: User
    projects: str
    quota: str


@dataclass(frozen=True, slots=True)
class UsersView:
    search_text: str
    rows: tuple[UserRow, ...]
    pager: Pager


@dataclass(frozen=True, slots=True)
class NewUserView:
    form: FormState
    roles: tuple[tuple[str, str], ...]
    projects: tuple[str, ...]
    selected_projects: tuple[str, ...]
    generates_password: bool


@dataclass(frozen=True, slots=True)
class UserView:
    user: User
    is_self: bool
    quota: str
    tokens: tuple[Token, ...]
    roles: tuple[tuple[str, str], ...]
    form: FormState


@dataclass(frozen=True, slots=True)
class PasswordView:
    """A generated password, which is shown only here."""

    name: str
    password: str


@router.get("/admin/users")
def show_users(request: AdminDep, q: SearchText = "", page: PageNumber = 1) -> Response:
    search = q.strip().lower()
    matching = [user for user in users.list_users(request.context, request.caller) if _matches(user, search)]
    shown, pages = paginate(matching, PageUrl("/admin/users", {"q": q.strip()}), page)
    view = UsersView(q.strip(), tuple(_row(user) for user in shown), pages)
    return render_page(request, PageSpec("admin/users.html", "Users", live_topics=("rules",)), view)


@router.get("/admin/new-user")
def show_new_user_form(request: AdminDep) -> Response:
    return _new_user_page(
        request, FormState({"role": "user"}), (request.context.settings.auth.default_project,), True
    )


@router.post("/admin/new-user")
def create_user(request: AdminDep, form: FormDep) -> Response:
    projects, generate_password = form.get_all("project")[:_MAX_PROJECTS], form.has("makes_password")
    try:
        reader = FormReader(form)
        new = NewUser(
            name=reader.read_line("name", required=True),
            role=_role(form.get("role")),
            unix_user=reader.read_line("unix_user") or None,
            password=users.generate_password() if generate_password else None,
            projects=projects,
        )
        reader.raise_if_invalid()
        user = users.create_user(request.context, request.caller, new)
    except _FORM_ERRORS as error:
        return _new_user_page(
            request, form_with_errors(form, error, {"projects": ""}), projects, generate_password
        )
    if new.password is None:
        return redirect(request, f"/admin/users/{user.name}", f"Account {user.name} created.")
    return _password_page(request, user.name, new.password)


_MAX_PROJECTS = 1000


@router.get("/admin/users/{name}")
def show_user(request: AdminDep, name: NameParam) -> Response:
    user = users.get_user(request.context, request.caller, name)
    return _user_page(request, user, FormState(_values(user)))


@router.post("/admin/users/{name}/account")
def update_account(request: AdminDep, name: NameParam, form: FormDep) -> Response:
    """Change role and Unix user. A role change needs a confirmation."""
    user = users.get_user(request.context, request.caller, name)
    try:
        reader, role = FormReader(form), _role(form.get("role"))
        unix_user = reader.read_line("unix_user")
        reader.raise_if_invalid()
        if role is not user.role and form.get("confirmed") != "yes":
            return _ask_about_role(request, user, role, unix_user)
        change = UserChange(role=role, unix_user=unix_user or None, clear_unix_user=not unix_user)
        users.update_user(request.context, request.caller, name, _without_same(user, change))
    except _FORM_ERRORS as error:
        return _user_page(request, user, form_with_errors(form, error, _values(user)))
    return redirect(request, f"/admin/users/{user.name}", "Saved.")


@router.post("/admin/users/{name}/quota")
def update_quota(request: AdminDep, name: NameParam, form: FormDep) -> Response:
    user = users.get_user(request.context, request.caller, name)
    try:
        reader = FormReader(form)
        quota = read_quota_fields(reader)
        reader.raise_if_invalid()
        users.update_user(request.context, request.caller, name, UserChange(quota=quota))
    except _FORM_ERRORS as error:
        return _user_page(request, user, form_with_errors(form, error, _values(user)))
    return redirect(request, f"/admin/users/{user.name}", "Quota saved.")


@router.post("/admin/users/{name}/active")
def set_user_active(request: AdminDep, name: NameParam, form: FormDep) -> Response:
    user, back = users.get_user(request.context, request.caller, name), f"/admin/users/{name}"
    active = form.get("active") == "yes"
    if not active and form.get("confirmed") != "yes":
        view = Confirmation(
            question=f"Deactivate {user.name}?",
            consequence="They are logged out and their tokens are revoked. Their jobs and files are kept.",
            items=_describe_work(request, name),
            action=f"{back}/active",
            label=f"Deactivate {user.name}",
            fields=(("confirmed", "yes"), ("active", "no")),
            back=back,
        )
        return render_page(
            request,
            PageSpec("confirmation.html", "Deactivate", breadcrumbs=(ADMIN_BREADCRUMB, _USERS, (user.name, back))),
            view,
        )
    try:
        users.update_user(request.context, request.caller, name, UserChange(active=active))
    except _FORM_ERRORS as error:
        return _user_page(request, user, form_with_errors(form, error, _values(user)))
    return redirect(request, back, f"{user.name} is {'active again' if active else 'deactivated'}.")


def _describe_work(request: AdminDep, name: str) -> tuple[str, ...]:
    work = get_owned_work(request.context, request.caller, name)
    running, waiting = len(work.running_jobs), len(work.waiting_jobs)
    items = []
    if running or waiting:
        items.append(f"{format_count(running, 'running job')} and {format_count(waiting, 'waiting job')} go on.")
        items.append(f"To cancel them: helio cancel --user {name}")
    if work.services:
        items.append(f"Replicas of these services are not replaced when they end: {', '.join(work.services)}.")
    if work.schedules:
        items.append(f"These schedules submit no more jobs: {', '.join(work.schedules)}.")
    return tuple(items)


@router.post("/admin/users/{name}/password")
def change_password(request: AdminDep, name: NameParam, form: FormDep) -> Response:
    """Admins enter their own password; other users get a generated one, which is shown once."""
    user, back = users.get_user(request.context, request.caller, name), f"/admin/users/{name}"
    if user.name == request.user.name:
        try:
            new_password, current = form.get_raw("password"), form.get_raw("current")
            users.set_password(request.context, request.caller, name, new_password, current)
        except _FORM_ERRORS as error:
            return _user_page(request, user, form_with_errors(form, error, _values(user)))
        return redirect(request, "/login")
    if form.get("confirmed") == "yes":
        return _password_page(request, name, users.reset_password(request.context, request.caller, name))
    view = Confirmation(
        question=f"Generate a new password for {user.name}?",
        consequence="They are logged out and the old password stops working. The new one is shown once.",
        action=f"{back}/password",
        label="Generate new password",
        fields=(("confirmed", "yes"),),
        back=back,
    )
    return render_page(
        request,
        PageSpec("confirmation.html", "New password", breadcrumbs=(ADMIN_BREADCRUMB, _USERS, (user.name, back))),
        view,
    )


@router.post("/admin/users/{name}/revoke")
def revoke_token(request: AdminDep, name: NameParam, form: FormDep) -> Response:
    user, back = users.get_user(request.context, request.caller, name), f"/admin/users/{name}"
    number = form.get("token")
    matching = [
        one for one in tokens.list_tokens(request.context, request.caller, user.name) if str(one.id) == number
    ]
    if not matching:
        raise NotFound(f"{user.name} has no such token.", "Reload the page; it may already be revoked.")
    if form.get("confirmed") != "yes":
        view = Confirmation(
            question=f"Revoke token “{matching[0].name}” of {user.name}?",
            consequence="Programs that use it lose access immediately. This cannot be undone.",
            action=f"{back}/revoke",
            label="Revoke token",
            fields=(("confirmed", "yes"), ("token", number)),
            back=back,
        )
        return render_page(
            request,
            PageSpec("confirmation.html", "Revoke", breadcrumbs=(ADMIN_BREADCRUMB, _USERS, (user.name, back))),
            view,
        )
    tokens.revoke_token(request.context, request.caller, matching[0].id)
    return redirect(request, back, "Token revoked.")


def _matches(user: User, search: str) -> bool:
    texts = (user.name, user.unix_user or "", user.role.value, *(one.project for one in user.memberships))
    return not search or any(search in text for text in texts)


def _row(user: User) -> UserRow:
    return UserRow(user, ", ".join(one.project for one in user.memberships), describe_quota(user.quota))


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise BadRequest("The role does not exist.", "Choose a role.", fields={"role": "choose a role"}) from None


def _values(user: User) -> Mapping[str, str]:
    own = {"role": user.role.value, "unix_user": user.unix_user or "", "password": "", "current": ""}
    return own | quota_form_values(user.quota)


def _without_same(user: User, change: UserChange) -> UserChange:
    """An unchanged Unix user is not checked again: it may no longer exist on the server."""
    if (change.unix_user or None) == user.unix_user:
        return UserChange(role=change.role)
    return change


def _ask_about_role(request: AuthenticatedRequest, user: User, role: Role, unix_user: str) -> Response:
    back = f"/admin/users/{user.name}"
    becomes_admin = role is Role.ADMIN
    view = Confirmation(
        question=f"Make {user.name} {'an admin' if becomes_admin else 'a regular user'}?",
        consequence="They can then see and change everything."
        if becomes_admin
        else "They can then see and change only what belongs to them.",
        action=f"{back}/account",
        label=f"Make {user.name} {'an admin' if becomes_admin else 'a regular user'}",
        fields=(("confirmed", "yes"), ("role", role.value), ("unix_user", unix_user)),
        back=back,
    )
    return render_page(
        request,
        PageSpec("confirmation.html", "Role", breadcrumbs=(ADMIN_BREADCRUMB, _USERS, (user.name, back))),
        view,
    )


def _new_user_page(
    request: AuthenticatedRequest, form: FormState, selected_projects: tuple[str, ...], generate_password: bool
) -> Response:
    names = tuple(project.name for project in list_projects(request.context, request.caller))
    view = NewUserView(form, ROLE_OPTIONS, names, selected_projects, generate_password)
    page = PageSpec("admin/new_user.html", "New user", breadcrumbs=(ADMIN_BREADCRUMB, _USERS), status=form.status)
    return render_page(request, page, view)


def _user_page(request: AuthenticatedRequest, user: User, form: FormState) -> Response:
    matching = tokens.list_tokens(request.context, request.caller, user.name)
    now = request.context.now()
    valid = [
        one for one in matching if one.revoked_at is None and (one.expires_at is None or one.expires_at > now)
    ]
    view = UserView(
        user, user.name == request.user.name, describe_quota(user.quota), tuple(valid), ROLE_OPTIONS, form
    )
    page = PageSpec("admin/user.html", user.name, breadcrumbs=(ADMIN_BREADCRUMB, _USERS), status=form.status)
    return render_page(request, page, view)


def _password_page(request: AuthenticatedRequest, name: str, password: str) -> Response:
    view = PasswordView(name, password)
    breadcrumbs = (ADMIN_BREADCRUMB, _USERS, (name, f"/admin/users/{name}"))
    return render_page(request, PageSpec("admin/password.html", "New password", breadcrumbs=breadcrumbs), view)
