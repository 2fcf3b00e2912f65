"""Client API for interactive sessions."""

import time
from collections.abc import Sequence
from typing import Self, SupportsInt, Unpack, cast

from heliostat.client.api_types import AccessKeyData, JobData, JobOptions
from heliostat.client.jobs import JobHandle
from heliostat.client.request_bodies import job_body
from heliostat.client.transport import ApiResource, Deadline, idempotency_header, quote_path_segment
from heliostat.errors import JobFailed, WaitTimedOut

_POLL_SECONDS = 0.5


class SessionData(JobData):
    """A job with the fields of a session."""

    app: str
    is_up: bool
    step: str
    warning: str | None
    shared_with: list[str]
    url: str
    log_tail: str | None


NameList = list[str]


class SessionHandle(JobHandle):
    """An interactive session: a job with an address. `refresh()` updates its properties."""

    __slots__ = ()
    _title = "Session"

    @property
    def data(self) -> SessionData:
        """All fields, as in the API."""
        return cast(SessionData, super().data)

    @property
    def url(self) -> str:
        """The address for a browser."""
        return self.data["url"]

    @property
    def is_up(self) -> bool:
        """Whether its web server responds."""
        return self.data["is_up"] and not self.is_terminal

    def refresh(self) -> Self:
        """Loads the current data from the server."""
        self._data = Sessions(self._transport).get(self.id).data
        return self

    def update_data(self, data: JobData) -> None:
        """Replaces the fields of its job."""
        self._data = cast(SessionData, {**(self._data or {}), **data})

    def wait_until_up(self, timeout: float | None = None) -> Self:
        """Waits until its web server responds. Raises WaitTimedOut, or JobFailed if it ends before."""
        deadline = Deadline(timeout)
        while not self.refresh().is_up:
            if self.is_terminal:
                raise JobFailed(
                    f"Session {self.id} {self.state}: {self.reason}.", f"Its output: helio logs {self.id}."
                )
            if deadline.is_expired:
                raise WaitTimedOut(f"Session {self.id} is not up after {timeout:g} s.", "It continues to start.")
            time.sleep(deadline.remaining_seconds(_POLL_SECONDS))
        return self

    def create_key(self) -> AccessKeyData:
        """A key for programs, to be sent as `Authorization: Bearer KEY` to its url."""
        return Sessions(self._transport).create_key(self)

    def share(self, user: str) -> NameList:
        """Gives a user access, who then acts as you. Returns all users that it is shared with."""
        return Sessions(self._transport).share(self, user)

    def unshare(self, user: str) -> NameList:
        """Revokes the access of a user. Returns all users that it is still shared with."""
        return Sessions(self._transport).unshare(self, user)

    def list_notebooks(self) -> NameList:
        """The notebooks in its working directory."""
        return Sessions(self._transport).list_notebooks(self)


SessionList = list[SessionHandle]


class Sessions(ApiResource):
    def start(
        self,
        app: str = "jupyter",
        command: str | Sequence[str] | None = None,
        *,
        idempotency_key: str | None = None,
        keep_idle: bool = False,
        **options: Unpack[JobOptions],
    ) -> SessionHandle:
        """Starts "jupyter", "terminal", "vscode", "rstudio", or with app "custom" a web server, whose command must
        listen on the port in $PORT. An idle session is ended after a while, unless `keep_idle` is set."""
        body = job_body({"command": command, **options}) | {"app": app}
        body |= {"keep_idle": True} if keep_idle else {}
        data: SessionData = self._transport.call(
            "POST", "/sessions", body, headers=idempotency_header(idempotency_key)
        )
        return SessionHandle(self._transport, data["id"], data)

    def get(self, job: SupportsInt) -> SessionHandle:
        """A session: its state and its address."""
        data: SessionData = self._transport.call("GET", f"/sessions/{int(job)}")
        return SessionHandle(self._transport, data["id"], data)

    def list(self, *, unfinished: bool = False) -> SessionList:
        """The caller's sessions, newest first."""
        items = self._items("/sessions", [("unfinished", unfinished or None)])
        return [SessionHandle(self._transport, data["id"], data) for data in items]

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
