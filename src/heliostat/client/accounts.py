"""Client API for users, projects, departments, tokens, logins and the audit log."""

from collections.abc import Iterator
from typing import Any

from heliostat.client.transport import ApiResource, JsonObject, JsonObjectList, drop_none, quote_path_segment

NameList = list[str]


class Users(ApiResource):
    def list(self) -> JsonObjectList:
        """All users."""
        return list(self._pages("/users"))

    def get(self, name: str) -> JsonObject:
        """A user with memberships."""
        data: JsonObject = self._transport.call("GET", f"/users/{quote_path_segment(name)}")
        return data

    def create(
        self,
        name: str,
        *,
        role: str | None = None,
        unix_user: str | None = None,
        password: str | None = None,
        projects: NameList | None = None,
    ) -> JsonObject:
        """Creates a user."""
        body = drop_none(name=name, role=role, unix_user=unix_user, password=password, projects=projects)
        data: JsonObject = self._transport.call("POST", "/users", body)
        return data

    def work(self, name: str) -> JsonObject:
        """What the account keeps going: `running_jobs`, `waiting_jobs`, `services`, `schedules`. For admins."""
        data: JsonObject = self._transport.call("GET", f"/users/{quote_path_segment(name)}/work")
        return data

    def change(self, name: str, **changes: Any) -> JsonObject:
        """Fields: `role`, `active`, `unix_user`, `quota`. `unix_user=None` removes the Unix user.

        `active=False` keeps the jobs of the account.

        A quota is `{"running_gpus", "queued_gpus", "gpu_hours_per_month"}`. Limits that are not given stay; None
        removes a limit.
        """
        data: JsonObject = self._transport.call("PATCH", f"/users/{quote_path_segment(name)}", changes)
        return data

    def set_password(self, name: str, password: str, current: str | None = None) -> None:
        """Sets the password of a user."""
        body = drop_none(password=password, current=current)
        self._transport.call("PUT", f"/users/{quote_path_segment(name)}/password", body)


class Departments(ApiResource):
    def list(self) -> JsonObjectList:
        """All departments."""
        return list(self._pages("/departments"))

    def create(self, name: str) -> JsonObject:
        """Creates a department."""
        data: JsonObject = self._transport.call("POST", "/departments", {"name": name})
        return data

    def change(self, name: str, **changes: Any) -> JsonObject:
        """Fields: `share`, `quota` (as for a user)."""
        data: JsonObject = self._transport.call("PATCH", f"/departments/{quote_path_segment(name)}", changes)
        return data


class Projects(ApiResource):
    def list(self) -> JsonObjectList:
        """The projects that the caller may see."""
        return list(self._pages("/projects"))

    def get(self, name: str) -> JsonObject:
        """A project with its members."""
        return self._call("GET", f"/projects/{quote_path_segment(name)}")

    def create(self, name: str, department: str) -> JsonObject:
        """Creates a project."""
        return self._call("POST", "/projects", {"name": name, "department": department})

    def change(self, name: str, **changes: Any) -> JsonObject:
        """Fields: `share`, `data_class`, `department`, `closes_at`, `quota` (as for a user).

        From `closes_at` (ISO 8601, with a time zone) on, the project accepts no new jobs; None opens it again.
        `note` in the response: effects on its jobs.
        """
        return self._call("PATCH", f"/projects/{quote_path_segment(name)}", changes)

    def add_member(self, project: str, user: str, role: str = "member") -> JsonObject:
        """Adds a member, or changes the role of one."""
        return self._call(
            "PUT", f"/projects/{quote_path_segment(project)}/members/{quote_path_segment(user)}", {"role": role}
        )

    def remove_member(self, project: str, user: str) -> JsonObject:
        """Removes a member; their jobs stay."""
        return self._call("DELETE", f"/projects/{quote_path_segment(project)}/members/{quote_path_segment(user)}")

    def _call(self, method: str, path: str, body: object = None) -> JsonObject:
        data: JsonObject = self._transport.call(method, path, body)
        return data


class Tokens(ApiResource):
    def list(self, user: str | None = None) -> JsonObjectList:
        """The caller's tokens, without their secrets."""
        return list(self._pages("/tokens", [("user", user)]))

    def create(self, name: str, days: int | None = None, scope: str | None = None) -> JsonObject:
        """The response contains the secret as `token`, only once. Scope: read, submit, metrics or full."""
        body = drop_none(name=name, days=days, scope=scope)
        data: JsonObject = self._transport.call("POST", "/tokens", body)
        return data

    def revoke(self, token_id: int) -> None:
        """Revokes a token: it stops working at once."""
        self._transport.call("DELETE", f"/tokens/{token_id}")


class Auth(ApiResource):
    """Logins and the audit log."""

    def whoami(self) -> JsonObject:
        """The caller's account and how the caller is authenticated."""
        data: JsonObject = self._transport.call("GET", "/whoami")
        return data

    def login(self, name: str, password: str) -> JsonObject:
        """Creates a short-lived token with a password: `{"token", "expires_at", …}`."""
        data: JsonObject = self._transport.call("POST", "/login", {"name": name, "password": password})
        return data

    def web_link(self, path: str | None = None) -> JsonObject:
        """An address that logs a browser in: `{"url", "expires_at"}`. Works once and expires after a few minutes.

        Opens the home page, or this path of the web interface.
        """
        link: JsonObject = self._transport.call("POST", "/login/link", {})
        return link if path is None else {**link, "url": f"{link['url']}&next={quote_path_segment(path)}"}

    def audit_log(
        self, limit: int | None = None, user: str | None = None, text: str | None = None
    ) -> Iterator[JsonObject]:
        """Audit log, newest first; only of this user, only with this text in the action or target."""
        return self._pages("/audit", [("user", user), ("text", text)], limit)
