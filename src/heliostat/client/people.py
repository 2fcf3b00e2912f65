"""The client's verbs on accounts, projects, tokens and the audit log."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from heliostat.client.pages import pages
from heliostat.client.transport import Transport


class PeopleVerbs:
    _transport: Transport

    def whoami(self) -> dict[str, Any]:
        """Who the server thinks you are, and by what proof."""
        return self._answer("GET", "/whoami")

    def login(self, name: str, password: str) -> dict[str, Any]:
        """Trades a password for a token: `{"token", "expires_at", …}`."""
        return self._answer("POST", "/login", {"name": name, "password": password})

    def web_link(self) -> dict[str, Any]:
        """An address that opens the web as you, once and within minutes: `{"url", "expires_at"}`."""
        return self._answer("POST", "/login/link", {})

    def tokens(self, user: str | None = None) -> list[dict[str, Any]]:
        return list(pages(self._transport, "/tokens", [("user", user)]))

    def create_token(self, name: str, days: int | None = None) -> dict[str, Any]:
        """The answer holds the secret under `token`; it is never shown again."""
        return self._answer("POST", "/tokens", _given(name=name, days=days))

    def revoke_token(self, token_id: int) -> None:
        self._transport.call("DELETE", f"/tokens/{token_id}")

    def users(self) -> list[dict[str, Any]]:
        return list(pages(self._transport, "/users"))

    def user(self, name: str) -> dict[str, Any]:
        return self._answer("GET", f"/users/{_part(name)}")

    def create_user(
        self,
        name: str,
        *,
        role: str | None = None,
        unix_user: str | None = None,
        password: str | None = None,
        projects: list[str] | None = None,
    ) -> dict[str, Any]:
        body = _given(name=name, role=role, unix_user=unix_user, password=password, projects=projects)
        return self._answer("POST", "/users", body)

    def change_user(self, name: str, **changes: Any) -> dict[str, Any]:
        """`role`, `active`, `unix_user`, `quota`; `unix_user=None` takes the Unix user away.

        A quota is `{"running_gpus", "queued_gpus", "gpu_hours_per_month"}`: only what is in it changes, None
        takes a limit away.
        """
        return self._answer("PATCH", f"/users/{_part(name)}", changes)

    def set_password(self, name: str, password: str, current: str | None = None) -> None:
        self._transport.call("PUT", f"/users/{_part(name)}/password", _given(password=password, current=current))

    def departments(self) -> list[dict[str, Any]]:
        return list(pages(self._transport, "/departments"))

    def create_department(self, name: str) -> dict[str, Any]:
        return self._answer("POST", "/departments", {"name": name})

    def change_department(self, name: str, **changes: Any) -> dict[str, Any]:
        """`share`, `quota` (as of a user)."""
        return self._answer("PATCH", f"/departments/{_part(name)}", changes)

    def projects(self) -> list[dict[str, Any]]:
        return list(pages(self._transport, "/projects"))

    def project(self, name: str) -> dict[str, Any]:
        return self._answer("GET", f"/projects/{_part(name)}")

    def create_project(self, name: str, department: str) -> dict[str, Any]:
        return self._answer("POST", "/projects", {"name": name, "department": department})

    def change_project(self, name: str, **changes: Any) -> dict[str, Any]:
        """`share`, `data_class`, `quota` (as of a user); `note` in the answer says what it means for its jobs."""
        return self._answer("PATCH", f"/projects/{_part(name)}", changes)

    def add_member(self, project: str, user: str, role: str = "member") -> dict[str, Any]:
        return self._answer("PUT", f"/projects/{_part(project)}/members/{_part(user)}", {"role": role})

    def remove_member(self, project: str, user: str) -> dict[str, Any]:
        return self._answer("DELETE", f"/projects/{_part(project)}/members/{_part(user)}")

    def audit(
        self, limit: int | None = None, user: str | None = None, text: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Who did what, newest first; only of this user, only with this in what was done or to what."""
        return pages(self._transport, "/audit", [("user", user), ("text", text)], limit)

    def _answer(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer: dict[str, Any] = self._transport.call(method, path, body)
        return answer


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _part(name: str) -> str:
    return quote(name, safe="")
