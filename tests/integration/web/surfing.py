"""A browser without eyes: cookies and forms over plain HTTP, so that hostile requests can be sent too."""

import html
import http.client
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from integration.running_server import RunningServer


@dataclass(frozen=True)
class Seen:
    status: int
    headers: Mapping[str, str]
    cookies: tuple[str, ...]
    text: str

    @property
    def location(self) -> str:
        return self.headers["location"]

    @property
    def form_token(self) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.text)
        assert found, self.text
        return html.unescape(found[1])


@dataclass
class Surfer:
    server: RunningServer
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Seen:
        return self.send("GET", path, None, headers)

    def post(self, path: str, fields: list[tuple[str, str]], **headers: str) -> Seen:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.send("POST", path, urlencode(fields), kind | headers)

    def send(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Seen:
        address = urlsplit(self.server.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port or 0, timeout=120)
        shown = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, (shown if self.cookies else {}) | named)
            answer = connection.getresponse()
            set_cookies = tuple(value for name, value in answer.getheaders() if name.lower() == "set-cookie")
            for cookie in set_cookies:
                name, _, value = cookie.partition(";")[0].partition("=")
                self.cookies[name] = value.strip('"')
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Seen(answer.status, found, set_cookies, answer.read().decode())
        finally:
            connection.close()

    def log_in(self, name: str, password: str, goal: str = "/") -> Seen:
        token = self.get("/login").form_token
        return self.post("/login", [("csrf", token), ("name", name), ("password", password), ("next", goal)])

    def by_link(self) -> "Surfer":
        """As whoever runs the tests."""
        url = self.server.ask("POST", "/login/link", {}).json["url"]
        assert self.get(url.removeprefix(self.server.url)).status == 303
        return self
