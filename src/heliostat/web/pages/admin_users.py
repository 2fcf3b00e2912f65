"""Accounts, for admins: who there is, who may come in, what they may use."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.errors import BadRequest, Conflict, NotFound
from heliostat.models import Role, Token, User
from heliostat.services.accounts import tokens, users
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
from heliostat.web.forms import FormReader, FormState, form_with_errors
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedRequest, FormDep
from heliostat.web.view_models import Confirmation, Pager, PageUrl

router = APIRouter()
ROLE_OPTIONS = (("user", "user"), ("admin", "admin: may do everything"))
_USERS = ("Users", "/admin/users")
_WRONG = (BadRequest, Conflict, NotFound)


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
    """The only page that ever shows it."""

    name: str
    password: str


@router.get("/admin/users")
def show_users(visit: AdminDep, q: SearchText = "", page: PageNumber = 1) -> Response:
    wanted = q.strip().lower()
    matching = [user for user in users.list_users(visit.context, visit.caller) if _fits(user, wanted)]
    shown, pages = paginate(matching, PageUrl("/admin/users", {"q": q.strip()}), page)
    view = UsersView(q.strip(), tuple(_row(user) for user in shown), pages)
    return render_page(visit, PageSpec("admin/users.html", "Users", live_topics=("rules",)), view)


@router.get("/admin/new-user")
def show_new_user_form(visit: AdminDep) -> Response:
    return _new_user_page(visit, FormState({"role": "user"}), (visit.context.settings.auth.default_project,), True)


@router.post("/admin/new-user")
def create_user(visit: AdminDep, form: FormDep) -> Response:
    wanted, makes_password = form.get_all("project")[:_MOST_PROJECTS], form.has("makes_password")
    try:
        reading = FormReader(form)
        new = NewUser(
            name=reading.read_line("name", needed=True),
            role=_role(form.get("role")),
            unix_user=reading.read_line("unix_user") or None,
            password=users.generate_password() if makes_password else None,
            projects=wanted,
        )
        reading.raise_if_invalid()
        user = users.create_user(visit.context, visit.caller, new)
    except _WRONG as error:
        return _new_user_page(visit, form_with_errors(form, error, {"projects": ""}), wanted, makes_password)
    if new.password is None:
        return redirect(visit, f"/admin/users/{user.name}", f"The account {user.name} is there.")
    return _password_page(visit, user.name, new.password)


_MOST_PROJECTS = 1000


@router.get("/admin/users/{name}")
def show_user(visit: AdminDep, name: NameParam) -> Response:
    user = users.get_user(visit.context, visit.caller, name)
    return _user_page(visit, user, FormState(_values(user)))


@router.post("/admin/users/{name}/account")
def update_account(visit: AdminDep, name: NameParam, form: FormDep) -> Response:
    """Role and Unix user. A new role asks once more."""
    user = users.get_user(visit.context, visit.caller, name)
    try:
        reading, role = FormReader(form), _role(form.get("role"))
        unix_user = reading.read_line("unix_user")
        reading.raise_if_invalid()
        if role is not user.role and form.get("confirmed") != "yes":
            return _ask_about_role(visit, user, role, unix_user)
        wish = UserChange(role=role, unix_user=unix_user or None, clear_unix_user=not unix_user)
        users.update_user(visit.context, visit.caller, name, _without_same(user, wish))
    except _WRONG as error:
        return _user_page(visit, user, form_with_errors(form, error, _values(user)))
    return redirect(visit, f"/admin/users/{user.name}", "Saved.")


@router.post("/admin/users/{name}/quota")
def update_quota(visit: AdminDep, name: NameParam, form: FormDep) -> Response:
    user = users.get_user(visit.context, visit.caller, name)
    try:
        reading = FormReader(form)
        quota = read_quota_fields(reading)
        reading.raise_if_invalid()
        users.update_user(visit.context, visit.caller, name, UserChange(quota=quota))
    except _WRONG as error:
        return _user_page(visit, user, form_with_errors(form, error, _values(user)))
    return redirect(visit, f"/admin/users/{user.name}", "The quota is set.")


@router.post("/admin/users/{name}/active")
def set_user_active(visit: AdminDep, name: NameParam, form: FormDep) -> Response:
    user, back = users.get_user(visit.context, visit.caller, name), f"/admin/users/{name}"
    active = form.get("active") == "yes"
    if not active and form.get("confirmed") != "yes":
        view = Confirmation(
            question=f"Deactivate {user.name}?",
            consequence="They are logged out everywhere and their tokens end. Their jobs and files stay.",
            action=f"{back}/active",
            label=f"Deactivate {user.name}",
            fields=(("confirmed", "yes"), ("active", "no")),
            back=back,
        )
        return render_page(
            visit,
            PageSpec("confirmation.html", "Deactivate", breadcrumbs=(ADMIN_BREADCRUMB, _USERS, (user.name, back))),
            view,
        )
    try:
        users.update_user(visit.context, visit.caller, name, UserChange(active=active))
    except _WRONG as error:
        return _user_page(visit, user, form_with_errors(form, error, _values(user)))
    return redirect(visit, back, f"{user.name} is {'active again' if active else 'deactivated'}.")


@router.post("/admin/users/{name}/password")
def change_password(visit: AdminDep, name: NameParam, form: FormDep) -> Response:
    """Somebody else gets a made-up one, which is shown once; one's own is typed, with the present one."""
    user, back = users.get_user(visit.context, visit.caller, name), f"/admin/users/{name}"
    if user.name == visit.user.name:
        try:
            typed, current = form.get_raw("password"), form.get_raw("current")
            users.set_password(visit.context, visit.caller, name, typed, current)
        except _WRONG as error:
            return _user_page(visit, user, form_with_errors(form, error, _values(user)))
        return redirect(visit, "/login")
    if form.get("confirmed") == "yes":
        return _password_page(visit, name, users.reset_password(visit.context, visit.caller, name))
    view = Confirmation(
        question=f"Give {user.name} a new password?",
        consequence="They are logged out everywhere and the old one is gone. The new one is shown to you once.",
        action=f"{back}/password",
        label="Make a new password",
        fields=(("confirmed", "yes"),),
        back=back,
    )
    return render_page(
        visit,
        PageSpec("confirmation.html", "New password", breadcrumbs=(ADMIN_BREADCRUMB, _USERS, (user.name, back))),
        view,
    )


@router.post("/admin/users/{name}/revoke")
def revoke_token(visit: AdminDep, name: NameParam, form: FormDep) -> Response:
    user, back = users.get_user(visit.context, visit.caller, name), f"/admin/users/{name}"
    number = form.get("token")
    found = [one for one in tokens.list_tokens(visit.context, visit.caller, user.name) if str(one.id) == number]
    if not found:
        raise NotFound(f"{user.name} has no such token.", "Load the page again; it may be gone already.")
    if form.get("confirmed") != "yes":
        view = Confirmation(
            question=f"Revoke the token “{found[0].name}” of {user.name}?",
            consequence="Whatever uses it is locked out at once. This cannot be undone.",
            action=f"{back}/revoke",
            label="Revoke it",
            fields=(("confirmed", "yes"), ("token", number)),
            back=back,
        )
        return render_page(
            visit,
            PageSpec("confirmation.html", "Revoke", breadcrumbs=(ADMIN_BREADCRUMB, _USERS, (user.name, back))),
            view,
        )
    tokens.revoke_token(visit.context, visit.caller, found[0].id)
    return redirect(visit, back, "The token is revoked.")


def _fits(user: User, wanted: str) -> bool:
    texts = (user.name, user.unix_user or "", user.role.value, *(one.project for one in user.memberships))
    return not wanted or any(wanted in text for text in texts)


def _row(user: User) -> UserRow:
    return UserRow(user, ", ".join(one.project for one in user.memberships), describe_quota(user.quota))


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise BadRequest("There is no such role.", "Choose one.", fields={"role": "choose one"}) from None


def _values(user: User) -> Mapping[str, str]:
    own = {"role": user.role.value, "unix_user": user.unix_user or "", "password": "", "current": ""}
    return own | quota_form_values(user.quota)


def _without_same(user: User, wish: UserChange) -> UserChange:
    """A Unix user that stays is not looked up again: it may be gone from the machine."""
    if (wish.unix_user or None) == user.unix_user:
        return UserChange(role=wish.role)
    return wish


def _ask_about_role(visit: AuthenticatedRequest, user: User, role: Role, unix_user: str) -> Response:
    back = f"/admin/users/{user.name}"
    grows = role is Role.ADMIN
    view = Confirmation(
        question=f"Make {user.name} {'an admin' if grows else 'a plain user'}?",
        consequence="They may then see and change everything here."
        if grows
        else "They may then no longer see or change what is not theirs.",
        action=f"{back}/account",
        label=f"Make {user.name} {'an admin' if grows else 'a plain user'}",
        fields=(("confirmed", "yes"), ("role", role.value), ("unix_user", unix_user)),
        back=back,
    )
    return render_page(
        visit,
        PageSpec("confirmation.html", "Role", breadcrumbs=(ADMIN_BREADCRUMB, _USERS, (user.name, back))),
        view,
    )


def _new_user_page(
    visit: AuthenticatedRequest, form: FormState, chosen: tuple[str, ...], makes_password: bool
) -> Response:
    names = tuple(project.name for project in list_projects(visit.context, visit.caller))
    view = NewUserView(form, ROLE_OPTIONS, names, chosen, makes_password)
    page = PageSpec("admin/new_user.html", "New user", breadcrumbs=(ADMIN_BREADCRUMB, _USERS), status=form.status)
    return render_page(visit, page, view)


def _user_page(visit: AuthenticatedRequest, user: User, form: FormState) -> Response:
    found = tokens.list_tokens(visit.context, visit.caller, user.name)
    now = visit.context.now()
    live = [one for one in found if one.revoked_at is None and (one.expires_at is None or one.expires_at > now)]
    view = UserView(
        user, user.name == visit.user.name, describe_quota(user.quota), tuple(live), ROLE_OPTIONS, form
    )
    page = PageSpec("admin/user.html", user.name, breadcrumbs=(ADMIN_BREADCRUMB, _USERS), status=form.status)
    return render_page(visit, page, view)


def _password_page(visit: AuthenticatedRequest, name: str, password: str) -> Response:
    view = PasswordView(name, password)
    crumbs = (ADMIN_BREADCRUMB, _USERS, (name, f"/admin/users/{name}"))
    return render_page(visit, PageSpec("admin/password.html", "New password", breadcrumbs=crumbs), view)
