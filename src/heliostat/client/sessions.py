"""Client API for interactive sessions."""

from collections.abc import Sequence
from typing import SupportsInt, Unpack

from heliostat.client.api_types import AccessKeyData, JobData, JobOptions
from heliostat.client.request_bodies import job_body
from heliostat.client.transport import ApiResource, idempotency_header, quote_path_segment


class SessionData(JobData):
    """A job with the fields of a session."""

    app: str
    is_up: bool
    step: str
    warning: str | None
    shared_with: list[str]
    url: str
    log_tail: str | None


SessionList = list[SessionData]
NameList = list[str]


class Sessions(ApiResource):
    def start(
        self,
        app: str = "jupyter",
        command: str | Sequence[str] | None = None,
        *,
        idempotency_key: str | None = None,
        keep_idle: bool = False,
        **options: Unpack[JobOptions],
    ) -> SessionData:
        """Starts "jupyter", "terminal", "vscode", "rstudio", or with app "custom" a web server, whose command must
        listen on the port in $PORT. An idle session is ended after a while, unless `keep_idle` is set."""
        body = job_body({"command": command, **options}) | {"app": app}
        body |= {"keep_idle": True} if keep_idle else {}
        data: SessionData = self._transport.call(
            "POST", "/sessions", body, headers=idempotency_header(idempotency_key)
        )
        return data

    def get(self, job: SupportsInt) -> SessionData:
        data: SessionData = self._transport.call("GET", f"/sessions/{int(job)}")
        return data

    def list(self, *, unfinished: bool = False) -> SessionList:
        """The caller's sessions, newest first."""
        return self._items("/sessions", [("unfinished", unfinished or None)])

    def create_key(self, job: SupportsInt) -> AccessKeyData:
        """A key for programs, to be sent as `Authorization: Bearer KEY` to the url of the session."""
        data: AccessKeyData = self._transport.call("POST", f"/sessions/{int(job)}/key", {})
        return data

    def share(self, job: SupportsInt, user: str) -> NameList:
        """Gives a user access, who then acts as the owner. Returns all users that it is shared with."""
        path = f"/sessions/{int(job)}/shares/{quote_path_segment(user)}"
        shared: list[str] = self._transport.call("PUT", path, {})["shared_with"]
        return shared

    def unshare(self, job: SupportsInt, user: str) -> NameList:
        """Revokes the access of a user. Returns all users that it is still shared with."""
        path = f"/sessions/{int(job)}/shares/{quote_path_segment(user)}"
        shared: list[str] = self._transport.call("DELETE", path)["shared_with"]
        return shared

    def list_notebooks(self, job: SupportsInt) -> NameList:
        """The notebooks in the working directory of the caller's running session."""
        return self._items(f"/sessions/{int(job)}/notebooks")
