"""Going through the proxy as a browser would, and as nobody should."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from integration.running_server import RunningServer, wait_for

ECHO_SERVER = Path(__file__).with_name("echo_server.py")
WEBSOCKET_SERVER = Path(__file__).with_name("websocket_server.py")
PYTHON = "/usr/bin/python3"


def proxy_url(server: RunningServer) -> str:
    url: str = json.loads((server.home / "server.json").read_text())["proxy_url"]
    return url


def start_echo_job(
    server: RunningServer, uid: int | None = None, address: str = "", **more: object
) -> tuple[int, int]:
    """A job whose echo server is up, and its port."""
    script = ECHO_SERVER.read_text()
    words = ["port", *([address] if address else [])]
    job = server.submit(uid, script=f"#!{PYTHON}\n{script}", command=words, **more)
    file = server.home / "jobs" / str(job) / "work" / "port"
    wait_for(file.exists, "the server inside the job listens", lambda: server.output(job, uid, "stderr"))
    wait_for(lambda: server.show(job, uid)["state"] == "running", "it is known to run")
    return job, int(file.read_text())


@dataclass(frozen=True)
class ProxyResponse:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def all_headers(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    @property
    def location(self) -> str:
        return self.all_headers("location")[0]

    def echoed_header(self, name: str) -> str | None:
        """Of the request, as the echo server saw it."""
        found = [value for key, value in self.json["headers"] if key.lower() == name]
        return found[0] if found else None


@dataclass
class ProxyBrowser:
    """A browser: cookies belong to a host, and ports do not count; paths do."""

    server: RunningServer
    cookies: dict[tuple[str, str], str] = field(default_factory=dict)

    def get(self, url: str, **options: Any) -> ProxyResponse:
        return self.send("GET", url, **options)

    def send(
        self, method: str, url: str, *, body: Any = None, headers: list[tuple[str, str]] | None = None
    ) -> ProxyResponse:
        with self.open_response(method, url, body=body, headers=headers) as response:
            return ProxyResponse(response.status, response.getheaders(), response.read())

    @contextmanager
    def open_response(
        self, method: str, url: str, *, body: Any = None, headers: list[tuple[str, str]] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        address = urlsplit(url)
        target = address.path + (f"?{address.query}" if address.query else "")
        connection = http.client.HTTPConnection(address.hostname or "", address.port or 0, timeout=60)
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        said = [("Host", address.netloc), *self._cookie(target), *(headers or [])]
        length = [("Content-Length", str(len(body)))] if isinstance(body, bytes) else []
        chunked = [("Transfer-Encoding", "chunked")] if body is not None and not length else []
        for name, value in _last_of(said + length + chunked, "Host"):
            connection.putheader(name, value)
        try:
            connection.endheaders(body, encode_chunked=bool(chunked))
            response = connection.getresponse()
            for cookie in response.headers.get_all("set-cookie") or []:
                self._keep(cookie)
            yield response
        finally:
            connection.close()

    def log_in(self, uid: int | None = None) -> "ProxyBrowser":
        url = self.server.ask("POST", "/login/link", {}, uid=uid).json["url"]
        assert self.get(url).status == 303
        return self

    def follow_redirects(self, url: str, most: int = 6) -> tuple[str, ProxyResponse]:
        """Where redirects lead, as a person's browser goes there."""
        for _ in range(most):
            got = self.get(url, headers=[("Accept", "text/html")])
            if got.status not in (302, 303, 307):
                return url, got
            place = got.location
            url = urljoin(url, place)
        raise AssertionError(f"it leads on and on: {url}")

    def _cookie(self, path: str) -> list[tuple[str, str]]:
        fitting = sorted(
            (place for place in self.cookies if path.startswith(place[1])), key=lambda place: -len(place[1])
        )
        text = "; ".join(f"{place[0]}={self.cookies[place]}" for place in fitting)
        return [("Cookie", text)] if text else []

    def _keep(self, cookie: str) -> None:
        pair, *attributes = cookie.split(";")
        name, _, value = pair.partition("=")
        paths = [one.strip()[5:] for one in attributes if one.strip().lower().startswith("path=")]
        self.cookies[name, paths[0] if paths else "/"] = value.strip('"')


def _last_of(headers: list[tuple[str, str]], name: str) -> list[tuple[str, str]]:
    """Of this header only the last, so that a test can say another."""
    last = [pair for pair in headers if pair[0] == name][-1:]
    return last + [pair for pair in headers if pair[0] != name]
