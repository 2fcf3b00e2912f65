"""The client's verbs on sessions and ports of running jobs."""

import uuid
from collections.abc import Sequence
from typing import TypedDict, Unpack
from urllib.parse import quote

from heliostat.client.bodies import job_body
from heliostat.client.shapes import JobData, JobOptions
from heliostat.client.transport import Transport


class SessionData(JobData):
    """A job, and what a session has besides."""

    app: str
    is_up: bool
    step: str
    warning: str | None
    shared_with: list[str]
    url: str
    log_tail: str | None


class PortData(TypedDict):
    job_id: int
    port: int
    url: str


class KeyData(TypedDict):
    url: str
    key: str
    expires_at: str


class SessionVerbs:
    _transport: Transport

    def start_session(
        self,
        app: str = "jupyter",
        command: str | Sequence[str] | None = None,
        *,
        idempotency_key: str | None = None,
        keep_idle: bool = False,
        **options: Unpack[JobOptions],
    ) -> "SessionData":
        """JupyterLab; or "terminal", "vscode", "rstudio"; or with app "custom" a web server of one's own, which
        finds its port in $PORT. One that nobody uses is ended after a while, unless it is to `keep_idle`."""
        body = job_body({"command": command, **options}) | {"app": app}
        body |= {"keep_idle": True} if keep_idle else {}
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        answer: SessionData = self._transport.call("POST", "/sessions", body, headers=headers)
        return answer

    def session(self, job: int) -> "SessionData":
        answer: SessionData = self._transport.call("GET", f"/sessions/{int(job)}")
        return answer

    def sessions(self, *, unfinished: bool = False) -> "list[SessionData]":
        """One's own, newest first."""
        query = [("unfinished", True)] if unfinished else ()
        items: list[SessionData] = self._transport.call("GET", "/sessions", query=query)["items"]
        return items

    def session_key(self, job: int) -> KeyData:
        """For a program: it sends the key as `Authorization: Bearer KEY` to the session's url."""
        answer: KeyData = self._transport.call("POST", f"/sessions/{int(job)}/key", {})
        return answer

    def share_session(self, job: int, user: str) -> list[str]:
        """Let somebody in, who acts there as its owner; with whom it is shared now."""
        path = f"/sessions/{int(job)}/shares/{quote(user, safe='')}"
        shared: list[str] = self._transport.call("PUT", path, {})["shared_with"]
        return shared

    def unshare_session(self, job: int, user: str) -> list[str]:
        """Take that back."""
        path = f"/sessions/{int(job)}/shares/{quote(user, safe='')}"
        shared: list[str] = self._transport.call("DELETE", path)["shared_with"]
        return shared

    def extend(self, job: int, time: str | int) -> JobData:
        """So much longer than its time limit says now: "2h", or seconds."""
        answer: JobData = self._transport.call("POST", f"/jobs/{int(job)}/extend", {"time": time})
        return answer

    def port(self, job: int, port: int) -> PortData:
        """Where a port of a running job of one's own is found in a browser."""
        answer: PortData = self._transport.call("GET", f"/jobs/{int(job)}/ports/{int(port)}")
        return answer

    def port_key(self, job: int, port: int) -> KeyData:
        """The same for a program: it sends the key as `Authorization: Bearer KEY`."""
        answer: KeyData = self._transport.call("POST", f"/jobs/{int(job)}/ports/{int(port)}/key", {})
        return answer

    def web_link_to(self, path: str) -> str:
        """An address that logs a browser in, once, and leads to this path of the web."""
        link: str = self._transport.call("POST", "/login/link", {})["url"]
        return f"{link}&next={quote(path, safe='')}"
