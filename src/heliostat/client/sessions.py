"""The client's verbs on sessions."""

from collections.abc import Sequence
from typing import SupportsInt, Unpack

from heliostat.client.api_types import AccessKeyData, JobData, JobOptions
from heliostat.client.request_bodies import job_body
from heliostat.client.transport import ApiResource, idempotency_header, quote_path_segment


class SessionData(JobData):
    """A job, and what a session has besides."""

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
        """JupyterLab; or "terminal", "vscode", "rstudio"; or with app "custom" a web server of one's own, which
        finds its port in $PORT. One that nobody uses is ended after a while, unless it is to `keep_idle`."""
        body = job_body({"command": command, **options}) | {"app": app}
        body |= {"keep_idle": True} if keep_idle else {}
        answer: SessionData = self._transport.call(
            "POST", "/sessions", body, headers=idempotency_header(idempotency_key)
        )
        return answer

    def get(self, job: SupportsInt) -> SessionData:
        answer: SessionData = self._transport.call("GET", f"/sessions/{int(job)}")
        return answer

    def list(self, *, unfinished: bool = False) -> SessionList:
        """One's own, newest first."""
        return self._items("/sessions", [("unfinished", unfinished or None)])

    def create_key(self, job: SupportsInt) -> AccessKeyData:
        """For a program: it sends the key as `Authorization: Bearer KEY` to the session's url."""
        answer: AccessKeyData = self._transport.call("POST", f"/sessions/{int(job)}/key", {})
        return answer

    def share(self, job: SupportsInt, user: str) -> NameList:
        """Let somebody in, who acts there as its owner; with whom it is shared now."""
        path = f"/sessions/{int(job)}/shares/{quote_path_segment(user)}"
        shared: list[str] = self._transport.call("PUT", path, {})["shared_with"]
        return shared

    def unshare(self, job: SupportsInt, user: str) -> NameList:
        """Take that back."""
        path = f"/sessions/{int(job)}/shares/{quote_path_segment(user)}"
        shared: list[str] = self._transport.call("DELETE", path)["shared_with"]
        return shared

    def list_notebooks(self, job: SupportsInt) -> NameList:
        """The notebooks in the working folder of a running session of one's own."""
        return self._items(f"/sessions/{int(job)}/notebooks")
