"""The client's verbs on users, projects, departments, tokens and one's own login."""

from collections.abc import Iterator
from typing import Any

from heliostat.client.transport import Record, Records, Resource, escaped, given

Names = list[str]


class Users(Resource):
    def list(self) -> Records:
        return list(self._pages("/users"))

    def get(self, name: str) -> Record:
        found: Record = self._transport.call("GET", f"/users/{escaped(name)}")
        return found

    def create(
        self,
        name: str,
        *,
        role: str | None = None,
        unix_user: str | None = None,
        password: str | None = None,
        projects: Names | None = None,
    ) -> Record:
        body = given(name=name, role=role, unix_user=unix_user, password=password, projects=projects)
        made: Record = self._transport.call("POST", "/users", body)
        return made

    def change(self, name: str, **changes: Any) -> Record:
        """`role`, `active`, `unix_user`, `quota`; `unix_user=None` takes the Unix user away.

        A quota is `{"running_gpus", "queued_gpus", "gpu_hours_per_month"}`: only what is in it changes, None
        takes a limit away.
        """
        changed: Record = self._transport.call("PATCH", f"/users/{escaped(name)}", changes)
        return changed

    def set_password(self, name: str, password: str, current: str | None = None) -> None:
        body = given(password=password, current=current)
        self._transport.call("PUT", f"/users/{escaped(name)}/password", body)


class Departments(Resource):
    def list(self) -> Records:
        return list(self._pages("/departments"))

    def create(self, name: str) -> Record:
        made: Record = self._transport.call("POST", "/departments", {"name": name})
        return made

    def change(self, name: str, **changes: Any) -> Record:
        """`share`, `quota` (as of a user)."""
        changed: Record = self._transport.call("PATCH", f"/departments/{escaped(name)}", changes)
        return changed


class Projects(Resource):
    def list(self) -> Records:
        return list(self._pages("/projects"))

    def get(self, name: str) -> Record:
        return self._call("GET", f"/projects/{escaped(name)}")

    def create(self, name: str, department: str) -> Record:
        return self._call("POST", "/projects", {"name": name, "department": department})

    def change(self, name: str, **changes: Any) -> Record:
        """`share`, `data_class`, `quota` (as of a user); `note` in the answer says what it means for its jobs."""
        return self._call("PATCH", f"/projects/{escaped(name)}", changes)

    def add_member(self, project: str, user: str, role: str = "member") -> Record:
        return self._call("PUT", f"/projects/{escaped(project)}/members/{escaped(user)}", {"role": role})

    def remove_member(self, project: str, user: str) -> Record:
        return self._call("DELETE", f"/projects/{escaped(project)}/members/{escaped(user)}")

    def _call(self, method: str, path: str, body: object = None) -> Record:
        answer: Record = self._transport.call(method, path, body)
        return answer


class Tokens(Resource):
    def list(self, user: str | None = None) -> Records:
        return list(self._pages("/tokens", [("user", user)]))

    def create(self, name: str, days: int | None = None) -> Record:
        """The answer holds the secret under `token`; it is never shown again."""
        made: Record = self._transport.call("POST", "/tokens", given(name=name, days=days))
        return made

    def revoke(self, token_id: int) -> None:
        self._transport.call("DELETE", f"/tokens/{token_id}")


class Auth(Resource):
    """Who one is, and who did what."""

    def whoami(self) -> Record:
        """Who the server thinks you are, and by what proof."""
        found: Record = self._transport.call("GET", "/whoami")
        return found

    def login(self, name: str, password: str) -> Record:
        """Trades a password for a token: `{"token", "expires_at", …}`."""
        made: Record = self._transport.call("POST", "/login", {"name": name, "password": password})
        return made

    def web_link(self, path: str | None = None) -> Record:
        """An address that logs a browser in, once and within minutes: `{"url", "expires_at"}`.

        It leads to the first page, or to this path of the web.
        """
        link: Record = self._transport.call("POST", "/login/link", {})
        return link if path is None else {**link, "url": f"{link['url']}&next={escaped(path)}"}

    def audit_log(
        self, limit: int | None = None, user: str | None = None, text: str | None = None
    ) -> Iterator[Record]:
        """Who did what, newest first; only of this user, only with this in what was done or to what."""
        return self._pages("/audit", [("user", user), ("text", text)], limit)
