"""The client's verbs on users, projects, departments, tokens and one's own login."""

from collections.abc import Iterator
from typing import Any

from heliostat.client.transport import ApiResource, JsonObject, JsonObjectList, drop_none, quote_path_segment

NameList = list[str]


class Users(ApiResource):
    def list(self) -> JsonObjectList:
        return list(self._pages("/users"))

    def get(self, name: str) -> JsonObject:
        found: JsonObject = self._transport.call("GET", f"/users/{quote_path_segment(name)}")
        return found

    def create(
        self,
        name: str,
        *,
        role: str | None = None,
        unix_user: str | None = None,
        password: str | None = None,
        projects: NameList | None = None,
    ) -> JsonObject:
        body = drop_none(name=name, role=role, unix_user=unix_user, password=password, projects=projects)
        made: JsonObject = self._transport.call("POST", "/users", body)
        return made

    def change(self, name: str, **changes: Any) -> JsonObject:
        """`role`, `active`, `unix_user`, `quota`; `unix_user=None` takes the Unix user away.

        A quota is `{"running_gpus", "queued_gpus", "gpu_hours_per_month"}`: only what is in it changes, None
        takes a limit away.
        """
        changed: JsonObject = self._transport.call("PATCH", f"/users/{quote_path_segment(name)}", changes)
        return changed

    def set_password(self, name: str, password: str, current: str | None = None) -> None:
        body = drop_none(password=password, current=current)
        self._transport.call("PUT", f"/users/{quote_path_segment(name)}/password", body)


class Departments(ApiResource):
    def list(self) -> JsonObjectList:
        return list(self._pages("/departments"))

    def create(self, name: str) -> JsonObject:
        made: JsonObject = self._transport.call("POST", "/departments", {"name": name})
        return made

    def change(self, name: str, **changes: Any) -> JsonObject:
        """`share`, `quota` (as of a user)."""
        changed: JsonObject = self._transport.call("PATCH", f"/departments/{quote_path_segment(name)}", changes)
        return changed


class Projects(ApiResource):
    def list(self) -> JsonObjectList:
        return list(self._pages("/projects"))

    def get(self, name: str) -> JsonObject:
        return self._call("GET", f"/projects/{quote_path_segment(name)}")

    def create(self, name: str, department: str) -> JsonObject:
        return self._call("POST", "/projects", {"name": name, "department": department})

    def change(self, name: str, **changes: Any) -> JsonObject:
        """`share`, `data_class`, `quota` (as of a user); `note` in the answer says what it means for its jobs."""
        return self._call("PATCH", f"/projects/{quote_path_segment(name)}", changes)

    def add_member(self, project: str, user: str, role: str = "member") -> JsonObject:
        return self._call(
            "PUT", f"/projects/{quote_path_segment(project)}/members/{quote_path_segment(user)}", {"role": role}
        )

    def remove_member(self, project: str, user: str) -> JsonObject:
        return self._call("DELETE", f"/projects/{quote_path_segment(project)}/members/{quote_path_segment(user)}")

    def _call(self, method: str, path: str, body: object = None) -> JsonObject:
        answer: JsonObject = self._transport.call(method, path, body)
        return answer


class Tokens(ApiResource):
    def list(self, user: str | None = None) -> JsonObjectList:
        return list(self._pages("/tokens", [("user", user)]))

    def create(self, name: str, days: int | None = None) -> JsonObject:
        """The answer holds the secret under `token`; it is never shown again."""
        made: JsonObject = self._transport.call("POST", "/tokens", drop_none(name=name, days=days))
        return made

    def revoke(self, token_id: int) -> None:
        self._transport.call("DELETE", f"/tokens/{token_id}")


class Auth(ApiResource):
    """Who one is, and who did what."""

    def whoami(self) -> JsonObject:
        """Who the server thinks you are, and by what proof."""
        found: JsonObject = self._transport.call("GET", "/whoami")
        return found

    def login(self, name: str, password: str) -> JsonObject:
        """Trades a password for a token: `{"token", "expires_at", …}`."""
        made: JsonObject = self._transport.call("POST", "/login", {"name": name, "password": password})
        return made

    def web_link(self, path: str | None = None) -> JsonObject:
        """An address that logs a browser in, once and within minutes: `{"url", "expires_at"}`.

        It leads to the first page, or to this path of the web.
        """
        link: JsonObject = self._transport.call("POST", "/login/link", {})
        return link if path is None else {**link, "url": f"{link['url']}&next={quote_path_segment(path)}"}

    def audit_log(
        self, limit: int | None = None, user: str | None = None, text: str | None = None
    ) -> Iterator[JsonObject]:
        """Who did what, newest first; only of this user, only with this in what was done or to what."""
        return self._pages("/audit", [("user", user), ("text", text)], limit)
