"""The client's verbs on sessions and ports of running jobs."""

from typing import TypedDict
from urllib.parse import quote

from heliostat.client.transport import Transport


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
